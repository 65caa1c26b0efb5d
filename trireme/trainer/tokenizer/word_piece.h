// WordPiece: the longest token that begins the word, then the longest that goes on, and so to the end.
#pragma once

#include "trireme/trainer/tokenizer/model.h"

namespace trireme::trainer {

class WordPiece final : public VocabularyModel {
 public:
  WordPiece(const JsonPlace& place, const TokenList& tokens);

  void tokenize(std::string_view word, std::vector<Token>& tokens) const override;

 private:
  void push_unknown(std::string_view word, std::vector<Token>& tokens) const;

  std::string unknown_;
  // Tokens with the prefix, without it ("ing" for "##ing"): no string is put together to look one up.
  StringMap<int32_t> continuing_;
  size_t max_characters_;
  size_t longest_first_ = 0, longest_continuing_ = 0;  // bytes; nothing longer is looked up
};

}  // namespace trireme::trainer
