// SentencePiece's way: a visible character for each space, and a word from one of them to the next.
#pragma once

#include "trireme/trainer/tokenizer/pre_tokenizer.h"

namespace trireme::trainer {

class Metaspace final : public PreTokenizer {
 public:
  explicit Metaspace(const JsonPlace& place);
  void apply(Pieces& pieces) const override;

 private:
  enum class Prepend { first, never, always };

  std::string replacement_;  // one character
  Prepend prepend_ = Prepend::always;
  bool split_;
};

}  // namespace trireme::trainer
