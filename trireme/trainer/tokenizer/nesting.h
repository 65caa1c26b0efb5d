// Sequences in a tokenizer.json may hold sequences; a file must not be able to exhaust the stack with that.
#pragma once

#include "trireme/trainer/json/json.h"

namespace trireme::trainer {

class Nesting {
 public:
  Nesting() = default;
  Nesting inside(const JsonPlace& place) const {
    if (depth_ == kMaxDepth) place.refuse("sequences are nested too deeply");
    return Nesting(depth_ + 1);
  }

 private:
  static constexpr int kMaxDepth = 16;
  explicit Nesting(int depth) : depth_(depth) {}
  int depth_ = 0;
};

}  // namespace trireme::trainer
