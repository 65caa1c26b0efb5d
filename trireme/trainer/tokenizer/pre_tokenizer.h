// The "pre_tokenizer" of a tokenizer.json: cuts the text into words, each of which the model takes apart by itself.
#pragma once

#include <memory>

#include "trireme/trainer/json/json.h"
#include "trireme/trainer/tokenizer/pieces.h"

namespace trireme::trainer {

// Threads may share one.
class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  virtual void apply(Pieces& pieces) const = 0;
};

// InvalidArgument says where in the file what is wrong, and names a type that we do not know.
std::unique_ptr<PreTokenizer> make_pre_tokenizer(const JsonPlace& place);

}  // namespace trireme::trainer
