// GPT-2's and RoBERTa's way: words by a fixed pattern, and a visible character for each of their bytes.
#pragma once

#include "trireme/trainer/tokenizer/pre_tokenizer.h"

namespace trireme::trainer {

class ByteLevel final : public PreTokenizer {
 public:
  explicit ByteLevel(const JsonPlace& place);
  void apply(Pieces& pieces) const override;

 private:
  bool add_prefix_space_, use_regex_;
};

// Where the match of GPT-2's pattern ends that begins at `begin`; there always is one.
size_t gpt2_word_end(std::string_view text, size_t begin);

}  // namespace trireme::trainer
