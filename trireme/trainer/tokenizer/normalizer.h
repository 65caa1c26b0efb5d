// The "normalizer" of a tokenizer.json: rewrites the text before it is cut into words.
#pragma once

#include <memory>

#include "trireme/trainer/json/json.h"
#include "trireme/trainer/tokenizer/aligned_text.h"

namespace trireme::trainer {

// Threads may share one.
class Normalizer {
 public:
  virtual ~Normalizer() = default;
  virtual void apply(AlignedText& text) const = 0;
};

// InvalidArgument says where in the file what is wrong, and names a type that we do not know.
std::unique_ptr<Normalizer> make_normalizer(const JsonPlace& place);

}  // namespace trireme::trainer
