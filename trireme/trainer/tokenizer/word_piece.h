// WordPiece: the longest token that begins the word, then the longest that goes on, and so to the end.
#pragma once

#include "trireme/trainer/tokenizer/model.h"

namespace trireme::trainer {

class WordPiece final : public Model {
 public:
  WordPiece(const JsonPlace& place, const TokenList& tokens);

  void tokenize(std::string_view word, std::vector<Token>& tokens) const override;
  std::optional<int32_t> find(std::string_view token) const override { return vocabulary_.find(token); }
  std::string_view token(int32_t id) const override { return vocabulary_.token(id); }
  size_t size() const override { return vocabulary_.size(); }
  int32_t highest_id() const override { return vocabulary_.highest_id(); }

 private:
  void push_unknown(std::string_view word, std::vector<Token>& tokens) const;

  std::string where_, unknown_;
  Vocabulary vocabulary_;
  // Tokens with the prefix, without it ("ing" for "##ing"): no string is put together to look one up.
  StringMap<int32_t> continuing_;
  size_t max_characters_;
  size_t longest_first_ = 0, longest_continuing_ = 0;  // bytes; nothing longer is looked up
};

}  // namespace trireme::trainer
