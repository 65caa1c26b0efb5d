// The "added_tokens" of a tokenizer.json: strings such as [SEP] or <mask> that are found in the text before any word is cut.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "trireme/trainer/json/json.h"
#include "trireme/trainer/tokenizer/byte_trie.h"
#include "trireme/trainer/tokenizer/model.h"
#include "trireme/trainer/tokenizer/normalizer.h"
#include "trireme/trainer/tokenizer/pieces.h"

namespace trireme::trainer {

// Threads may share one.
class AddedTokens {
 public:
  // `place` is the array. The ids are the model's, and after them those that follow, as in Hugging Face's library; the "id"
  // in the file is compared with that. `normalizer` may be null.
  AddedTokens(const JsonPlace& place, const Model& model, const Normalizer* normalizer);

  std::optional<int32_t> find(std::string_view token) const;
  std::optional<std::string_view> token(int32_t id) const;
  int32_t highest_id() const { return highest_id_; }  // -1 if there is none

  // Cuts out those that are matched in the text as it was given, or those that are matched after the normalizer.
  void cut_from_given(Pieces& pieces) const { cut(pieces, given_); }
  void cut_from_normalized(Pieces& pieces) const { cut(pieces, normalized_); }

 private:
  struct Added {
    std::string content;
    bool single_word = false, lstrip = false, rstrip = false, normalized = true, special = false;
    bool operator==(const Added&) const = default;
  };
  struct Match {
    size_t begin = 0, end = 0;
    int32_t id = -1;
  };

  static Added read(const JsonPlace& place);
  void number(const std::vector<Added>& tokens, const JsonPlace& place, const Model& model);
  void cut(Pieces& pieces, const ByteTrie& tokens) const;
  // The leftmost token at or after `from`, the longest if several begin there; id -1 if there is none.
  static Match next_match(std::string_view text, size_t from, const ByteTrie& tokens);

  StringMap<int32_t> ids_;
  std::unordered_map<int32_t, Added> by_id_;
  ByteTrie given_, normalized_;
  int32_t highest_id_ = -1;
};

}  // namespace trireme::trainer
