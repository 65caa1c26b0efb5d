#include "trireme/trainer/tokenizer/bpe.h"

#include <cstdio>
#include <queue>

#include "trireme/base/error.h"
#include "trireme/trainer/tokenizer/utf8.h"

namespace trireme::trainer {
namespace {

uint64_t key_of(int32_t first, int32_t second) {
  return static_cast<uint64_t>(static_cast<uint32_t>(first)) << 32 | static_cast<uint32_t>(second);
}

}  // namespace

// A pair that could be joined when it was noted down. The lowest rank goes first, then the leftmost.
struct Bpe::Candidate {
  uint32_t rank;
  int32_t position;
  int32_t id;
  bool operator<(const Candidate& other) const { return rank != other.rank ? rank > other.rank : position > other.position; }
};

Bpe::Bpe(const JsonPlace& place, const TokenList& tokens)
    : VocabularyModel(place, tokens),
      unknown_(place.string_or("unk_token", "")),
      prefix_(place.string_or("continuing_subword_prefix", "")),
      suffix_(place.string_or("end_of_word_suffix", "")),
      has_unknown_(place.has("unk_token")),
      fuse_unknown_(place.boolean_or("fuse_unk", false)),
      byte_fallback_(place.boolean_or("byte_fallback", false)),
      ignore_merges_(place.boolean_or("ignore_merges", false)) {
  place["vocab"].object();
  if (place.number_or("dropout", 0) != 0) place["dropout"].refuse("dropout of merges is not supported");
  read_merges(place["merges"]);
  for (char32_t character = 0; character < small_characters_.size(); ++character) {
    std::string text;
    append_character(text, character);
    small_characters_[character] = vocabulary_.find(text).value_or(-1);
  }
}

// ["Ġ t", ...] or [["Ġ", "t"], ...]; the place in the list is the rank.
void Bpe::read_merges(const JsonPlace& place) {
  merges_.reserve(place.size());
  uint32_t rank = 0;
  for (size_t i = 0; i < place.size(); ++i) {
    const JsonPlace merge = place.at(i);
    if (merge.value().is_array()) {
      if (merge.size() != 2) merge.refuse("a pair of tokens is wanted");
      add_merge(merge.at(0).string(), merge.at(1).string(), rank++, merge);
      continue;
    }
    const std::string& text = merge.string();
    if (text.starts_with("#version")) continue;
    const size_t space = text.find(' ');
    if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos) {
      merge.refuse("two tokens with a space between them are wanted");
    }
    add_merge(text.substr(0, space), text.substr(space + 1), rank++, merge);
  }
}

void Bpe::add_merge(const std::string& first, const std::string& second, uint32_t rank, const JsonPlace& place) {
  const auto id_of = [&](const std::string& token) {
    const std::optional<int32_t> id = find(token);
    if (!id) place.refuse(str("\"", token, "\" is not in the vocabulary"));
    return *id;
  };
  const int32_t first_id = id_of(first), second_id = id_of(second);
  if (second.size() < prefix_.size()) place.refuse(str("\"", second, "\" does not begin with \"", prefix_, "\""));
  merges_[key_of(first_id, second_id)] = {rank, id_of(first + second.substr(prefix_.size()))};
}

const Bpe::Merge* Bpe::merge_of(int32_t first, int32_t second) const {
  const auto found = merges_.find(key_of(first, second));
  return found == merges_.end() ? nullptr : &found->second;
}

void Bpe::tokenize(std::string_view word, std::vector<Token>& tokens) const {
  if (ignore_merges_) {
    if (const std::optional<int32_t> id = find(word)) {
      tokens.push_back({*id, 0, static_cast<uint32_t>(word.size())});
      return;
    }
  }
  std::vector<Symbol> symbols = split(word);
  join(symbols);
  uint32_t at = 0;
  for (const Symbol& symbol : symbols) {
    if (symbol.bytes == 0) continue;
    tokens.push_back({symbol.id, at, at + symbol.bytes});
    at += symbol.bytes;
  }
}

// The characters of the word. One that is unknown becomes the token for that, or goes if there is none: then those after it
// move to its place, as in Hugging Face's library.
std::vector<Bpe::Symbol> Bpe::split(std::string_view word) const {
  std::vector<Symbol> symbols;
  symbols.reserve(word.size());
  uint32_t unknown_bytes = 0;  // of a token for the unknown that is not yet among the symbols
  const auto flush_unknown = [&] {
    if (unknown_bytes > 0) symbols.push_back({unknown_id(), unknown_bytes});
    unknown_bytes = 0;
  };
  for (size_t i = 0, bytes; i < word.size(); i += bytes) {
    bytes = character_bytes(word[i]);
    const std::string_view character = word.substr(i, bytes);
    if (const auto id = find_character(character, i == 0, i + bytes == word.size())) {
      flush_unknown();
      symbols.push_back({*id, static_cast<uint32_t>(bytes)});
    } else if (!byte_fallback_ || !split_into_bytes(character, symbols)) {
      if (!has_unknown_) continue;
      if (!fuse_unknown_) flush_unknown();
      unknown_bytes += static_cast<uint32_t>(bytes);
    }
  }
  flush_unknown();
  for (int32_t i = 0, count = static_cast<int32_t>(symbols.size()); i < count; ++i) {
    symbols[static_cast<size_t>(i)].before = i - 1;
    symbols[static_cast<size_t>(i)].after = i + 1 < count ? i + 1 : -1;
  }
  return symbols;
}

std::optional<int32_t> Bpe::find_character(std::string_view character, bool first, bool last) const {
  const bool prefixed = !first && !prefix_.empty(), suffixed = last && !suffix_.empty();
  if (prefixed || suffixed) return find(str(prefixed ? prefix_ : "", character, suffixed ? suffix_ : ""));
  const char32_t code = character_at(character, 0);
  if (code >= small_characters_.size()) return find(character);
  return small_characters_[code] < 0 ? std::nullopt : std::optional(small_characters_[code]);
}

// Tokens as <0xE4>, if the vocabulary has them for all bytes.
bool Bpe::split_into_bytes(std::string_view character, std::vector<Symbol>& symbols) const {
  const size_t before = symbols.size();
  for (const char byte : character) {
    char name[8];
    std::snprintf(name, sizeof name, "<0x%02X>", static_cast<unsigned>(static_cast<uint8_t>(byte)));
    const std::optional<int32_t> id = find(name);
    if (!id) {
      symbols.resize(before);
      return false;
    }
    symbols.push_back({*id, 1});
  }
  return true;
}

int32_t Bpe::unknown_id() const {
  const std::optional<int32_t> id = find(unknown_);
  if (!id) throw InvalidArgument(str(where_, ": the vocabulary lacks its token for the unknown, \"", unknown_, "\""));
  return *id;
}

void Bpe::join(std::vector<Symbol>& symbols) const {
  const auto at = [&](int32_t position) -> Symbol& { return symbols[static_cast<size_t>(position)]; };
  std::priority_queue<Candidate> candidates;
  const auto note = [&](int32_t position) {
    if (position < 0 || at(position).after < 0) return;
    if (const Merge* merge = merge_of(at(position).id, at(at(position).after).id)) {
      candidates.push({merge->rank, position, merge->id});
    }
  };
  for (int32_t i = 0; i < static_cast<int32_t>(symbols.size()); ++i) note(i);
  while (!candidates.empty()) {
    const Candidate best = candidates.top();
    candidates.pop();
    Symbol& first = at(best.position);
    if (first.bytes == 0 || first.after < 0) continue;
    Symbol& second = at(first.after);
    const Merge* merge = merge_of(first.id, second.id);
    if (merge == nullptr || merge->id != best.id) continue;  // one of the two was joined to another since
    first.id = best.id;
    first.bytes += second.bytes;
    first.after = second.after;
    second.bytes = 0;
    if (first.after >= 0) at(first.after).before = best.position;
    note(first.before);
    note(best.position);
  }
}

}  // namespace trireme::trainer
