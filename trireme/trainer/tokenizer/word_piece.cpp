#include "trireme/trainer/tokenizer/word_piece.h"

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/trainer/tokenizer/utf8.h"

namespace trireme::trainer {

WordPiece::WordPiece(const JsonPlace& place, const TokenList& tokens)
    : VocabularyModel(place, tokens), unknown_(place["unk_token"].string()), max_characters_(0) {
  place["vocab"].object();
  const int64_t limit = place["max_input_chars_per_word"].integer();
  if (limit < 0) place["max_input_chars_per_word"].refuse("must not be negative");
  max_characters_ = static_cast<size_t>(limit);
  const std::string& prefix = place["continuing_subword_prefix"].string();
  for (const auto& [token, id] : vocabulary_.ids()) {
    longest_first_ = std::max(longest_first_, token.size());
    if (token.starts_with(prefix) && token.size() > prefix.size()) {
      continuing_.emplace(token.substr(prefix.size()), id);
      longest_continuing_ = std::max(longest_continuing_, token.size() - prefix.size());
    }
  }
}

void WordPiece::tokenize(std::string_view word, std::vector<Token>& tokens) const {
  if (word.size() > max_characters_ && count_characters(word) > max_characters_) return push_unknown(word, tokens);
  const size_t known = tokens.size();
  for (size_t begin = 0; begin < word.size();) {
    const StringMap<int32_t>& candidates = begin == 0 ? vocabulary_.ids() : continuing_;
    size_t end = std::min(word.size(), begin + (begin == 0 ? longest_first_ : longest_continuing_));
    while (end < word.size() && end > begin && !starts_character(word[end])) --end;
    auto found = candidates.end();
    for (; end > begin; end = character_before(word, end)) {
      found = candidates.find(word.substr(begin, end - begin));
      if (found != candidates.end()) break;
    }
    if (found == candidates.end()) {
      tokens.resize(known);
      return push_unknown(word, tokens);
    }
    tokens.push_back({found->second, static_cast<uint32_t>(begin), static_cast<uint32_t>(end)});
    begin = end;
  }
}

void WordPiece::push_unknown(std::string_view word, std::vector<Token>& tokens) const {
  const std::optional<int32_t> id = find(unknown_);
  if (!id) throw InvalidArgument(str(where_, ": the vocabulary lacks its token for the unknown, \"", unknown_, "\""));
  tokens.push_back({*id, 0, static_cast<uint32_t>(word.size())});
}

}  // namespace trireme::trainer
