// Unigram (SentencePiece): of all ways to cut a word into tokens the one whose scores have the highest sum.
#pragma once

#include "trireme/trainer/tokenizer/byte_trie.h"
#include "trireme/trainer/tokenizer/model.h"

namespace trireme::trainer {

class Unigram final : public Model {
 public:
  explicit Unigram(const JsonPlace& place);

  void tokenize(std::string_view word, std::vector<Token>& tokens) const override;
  std::optional<int32_t> find(std::string_view token) const override;
  std::string_view token(int32_t id) const override { return tokens_.at(static_cast<size_t>(id)); }
  size_t size() const override { return tokens_.size(); }
  int32_t highest_id() const override { return static_cast<int32_t>(tokens_.size()) - 1; }
  std::string_view written(const Token& token, std::string_view word) const override;

 private:
  struct Best;  // the best way that ends at a byte

  void read_vocabulary(const JsonPlace& place);
  void search(std::string_view word, std::vector<Best>& best) const;
  void push(std::string_view word, uint32_t begin, uint32_t end, std::vector<Token>& tokens) const;
  int32_t unknown_id() const;

  std::string where_;
  std::vector<std::string> tokens_;
  std::vector<double> scores_;
  StringMap<int32_t> ids_;  // of equal tokens the last counts
  ByteTrie trie_;
  int32_t unknown_id_ = -1;  // -1, there is none
  double unknown_score_ = 0;
  bool byte_fallback_;
};

}  // namespace trireme::trainer
