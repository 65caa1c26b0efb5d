#include "trireme/trainer/tokenizer/byte_level.h"

#include <array>

#include "trireme/trainer/tokenizer/characters.h"
#include "trireme/trainer/tokenizer/utf8.h"

namespace trireme::trainer {
namespace {

// The character that stands for a byte, in UTF-8: itself where that is visible, else one of those from U+0100 on.
struct ByteCharacter {
  char bytes[2];
  uint8_t size;
};

std::array<ByteCharacter, 256> make_byte_characters() {
  std::array<ByteCharacter, 256> characters{};
  char32_t next = 0x100;
  for (char32_t byte = 0; byte < 256; ++byte) {
    const bool visible = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte != 0xAD);
    std::string text;
    const auto size = static_cast<uint8_t>(append_character(text, visible ? byte : next++));
    characters[byte] = {{text[0], size > 1 ? text[1] : '\0'}, size};
  }
  return characters;
}

template <class Is>
size_t run_end(std::string_view text, size_t at, const Is& is) {
  while (at < text.size() && is(character_at(text, at))) at += character_bytes(text[at]);
  return at;
}

bool is_other(char32_t character) { return !is_white_space(character) && !is_letter(character) && !is_number(character); }

}  // namespace

// 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
size_t gpt2_word_end(std::string_view text, size_t begin) {
  if (text[begin] == '\'') {
    for (const std::string_view ending : {"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"}) {
      if (text.substr(begin).starts_with(ending)) return begin + ending.size();
    }
  }
  const size_t at = begin + (text[begin] == ' ' ? 1 : 0);
  if (at < text.size()) {
    const char32_t first = character_at(text, at);
    if (is_letter(first)) return run_end(text, at, is_letter);
    if (is_number(first)) return run_end(text, at, is_number);
    if (!is_white_space(first)) return run_end(text, at, is_other);
  }
  // White space up to the end, or up to the last of it, which belongs to the word that follows; or that one alone.
  const size_t end = run_end(text, begin, is_white_space);
  if (end == text.size()) return end;
  const size_t last = character_before(text, end);
  return last > begin ? last : end;
}

ByteLevel::ByteLevel(const JsonPlace& place)
    : add_prefix_space_(place["add_prefix_space"].boolean()), use_regex_(place.boolean_or("use_regex", true)) {
  place["trim_offsets"].boolean();
}

void ByteLevel::apply(Pieces& pieces) const {
  static const std::array<ByteCharacter, 256> kCharacters = make_byte_characters();
  Pieces out;
  out.text.text.reserve(pieces.text.text.size() * 2);
  out.text.spans.reserve(pieces.text.text.size() * 2);
  const auto append = [&](std::string_view bytes, const Encoding::Span* spans) {
    for (size_t i = 0; i < bytes.size(); ++i) {
      const ByteCharacter& character = kCharacters[static_cast<uint8_t>(bytes[i])];
      out.text.text.append(character.bytes, character.size);
      out.text.spans.insert(out.text.spans.end(), character.size, spans[i]);
    }
  };
  AlignedText word;
  for (const Piece& piece : pieces.list) {
    auto begin = static_cast<uint32_t>(out.text.text.size());
    const auto push = [&](uint32_t origin, int32_t id) {
      out.list.push_back({begin, static_cast<uint32_t>(out.text.text.size()), origin, id});
      begin = out.list.back().end;
    };
    if (piece.id >= 0) {
      append_range(out.text, pieces.text, piece.begin, piece.end);
      push(piece.origin, piece.id);
      continue;
    }
    word.text.clear();
    word.spans.clear();
    append_range(word, pieces.text, piece.begin, piece.end);
    if (add_prefix_space_ && word.text[0] != ' ') prepend(word, " ");
    for (size_t at = 0, end; at < word.text.size(); at = end) {
      end = use_regex_ ? gpt2_word_end(word.text, at) : word.text.size();
      append(std::string_view(word.text).substr(at, end - at), word.spans.data() + at);
      push(use_regex_ ? word.spans[at].begin : piece.origin, -1);
    }
  }
  pieces = std::move(out);
}

}  // namespace trireme::trainer
