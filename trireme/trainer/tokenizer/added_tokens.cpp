#include "trireme/trainer/tokenizer/added_tokens.h"

#include <algorithm>
#include <deque>
#include <limits>
#include <set>

#include "trireme/base/error.h"
#include "trireme/base/log.h"
#include "trireme/trainer/tokenizer/characters.h"
#include "trireme/trainer/tokenizer/utf8.h"

namespace trireme::trainer {
namespace {

bool ends_with_word(std::string_view text) {
  return !text.empty() && is_word(character_at(text, character_before(text, text.size())));
}

bool starts_with_word(std::string_view text) { return !text.empty() && is_word(character_at(text, 0)); }

// Where the white space at the end of `text` begins.
size_t white_space_at_end(std::string_view text) {
  size_t at = text.size();
  while (at > 0) {
    const size_t before = character_before(text, at);
    if (!is_white_space(character_at(text, before))) break;
    at = before;
  }
  return at;
}

size_t white_space_at_start(std::string_view text) {
  size_t at = 0;
  while (at < text.size() && is_white_space(character_at(text, at))) at += character_bytes(text[at]);
  return at;
}

}  // namespace

AddedTokens::Added AddedTokens::read(const JsonPlace& place) {
  place["id"].integer();
  Added token;
  token.content = place["content"].string();
  token.single_word = place["single_word"].boolean();
  token.lstrip = place["lstrip"].boolean();
  token.rstrip = place["rstrip"].boolean();
  token.normalized = place["normalized"].boolean();
  token.special = place["special"].boolean();
  return token;
}

AddedTokens::AddedTokens(const JsonPlace& place, const Model& model, const Normalizer* normalizer) {
  std::vector<Added> tokens;
  for (size_t i = 0; i < place.size(); ++i) tokens.push_back(read(place.at(i)));
  number(tokens, place, model);

  // Special tokens come first: where two are equal, the first is found.
  std::stable_partition(tokens.begin(), tokens.end(), [](const Added& token) { return token.special; });
  std::vector<std::pair<std::string_view, int32_t>> given, normalized;
  std::deque<std::string> contents;  // whose strings do not move
  std::set<std::string_view> special;
  for (const Added& token : tokens) {
    if (token.content.empty() || special.contains(token.content)) continue;
    if (token.special) special.insert(token.content);
    if (!token.normalized) {
      given.emplace_back(token.content, ids_.at(token.content));
      continue;
    }
    AlignedText content = align(token.content, 0);
    if (normalizer != nullptr) normalizer->apply(content);
    if (content.text.empty()) place.refuse(str("nothing is left of the token \"", token.content, "\" after the normalizer"));
    normalized.emplace_back(contents.emplace_back(std::move(content.text)), ids_.at(token.content));
  }
  given_ = ByteTrie(std::move(given));
  normalized_ = ByteTrie(std::move(normalized));
}

void AddedTokens::number(const std::vector<Added>& tokens, const JsonPlace& place, const Model& model) {
  auto next = static_cast<int64_t>(model.size());
  for (size_t i = 0; i < tokens.size(); ++i) {
    const Added& token = tokens[i];
    if (token.content.empty()) continue;
    std::optional<int32_t> id = find(token.content);
    if (!id) id = model.find(token.content);
    if (!id) {
      if (next >= std::numeric_limits<int32_t>::max()) place.refuse("too many tokens");
      id = static_cast<int32_t>(next++);
    }
    if (place.at(i)["id"].integer() != *id) {
      log_once(LogLevel::warn, str(place.at(i).where(), ": token \"", token.content, "\" should have the id ",
                                   place.at(i)["id"].integer(), " and gets ", *id, ", as in Hugging Face's library"));
    }
    ids_[token.content] = *id;
    by_id_[*id] = token;
    highest_id_ = std::max(highest_id_, *id);
  }
}

std::optional<int32_t> AddedTokens::find(std::string_view token) const {
  const auto found = ids_.find(token);
  return found == ids_.end() ? std::nullopt : std::optional(found->second);
}

std::optional<std::string_view> AddedTokens::token(int32_t id) const {
  const auto found = by_id_.find(id);
  return found == by_id_.end() ? std::nullopt : std::optional<std::string_view>(found->second.content);
}

AddedTokens::Match AddedTokens::next_match(std::string_view text, size_t from, const ByteTrie& tokens) {
  for (; from < text.size(); ++from) {
    Match match;
    tokens.each_prefix(text.substr(from), [&](size_t bytes, int32_t id) { match = {from, from + bytes, id}; });
    if (match.id >= 0) return match;
  }
  return {};
}

void AddedTokens::cut(Pieces& pieces, const ByteTrie& tokens) const {
  std::vector<Piece> parts;
  for (const Piece& piece : pieces.list) {
    if (piece.id >= 0) {
      parts.push_back(piece);
      continue;
    }
    const std::string_view text = pieces.of(piece);
    const auto push = [&](size_t begin, size_t end, int32_t id) {
      if (begin >= end) return;
      const auto first = piece.begin + static_cast<uint32_t>(begin);
      parts.push_back({first, piece.begin + static_cast<uint32_t>(end), pieces.text.spans[first].begin, id});
    };
    size_t done = 0;
    for (Match match; !tokens.empty() && (match = next_match(text, match.end, tokens)).id >= 0;) {
      const Added& token = by_id_.at(match.id);
      auto [begin, end, id] = match;
      if (token.single_word && (ends_with_word(text.substr(0, begin)) || starts_with_word(text.substr(end)))) continue;
      if (token.lstrip) begin = std::max(white_space_at_end(text.substr(0, begin)), done);
      if (token.rstrip) end += white_space_at_start(text.substr(end));
      push(done, begin, -1);
      push(begin, end, id);
      done = end;
    }
    push(done, text.size(), -1);
  }
  pieces.list = std::move(parts);
}

}  // namespace trireme::trainer
