// UTF-8, byte by byte. All but check_utf8() trust their input: the tokenizer checks a text once and then walks it many
// times.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace trireme::trainer {

// InvalidArgument names `what` and the byte that does not belong: no overlong forms, no surrogates, nothing above U+10FFFF.
void check_utf8(std::string_view text, std::string_view what);

bool is_ascii(std::string_view text);

inline bool starts_character(char byte) { return (static_cast<uint8_t>(byte) & 0xC0) != 0x80; }

// Bytes of the character that begins with `lead`.
inline uint32_t character_bytes(char lead) {
  const auto byte = static_cast<uint8_t>(lead);
  return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

// The character at `position`.
inline char32_t character_at(std::string_view text, size_t position) {
  const auto byte = [&](size_t i) { return static_cast<char32_t>(static_cast<uint8_t>(text[position + i])); };
  switch (character_bytes(text[position])) {
    case 1: return byte(0);
    case 2: return (byte(0) & 0x1F) << 6 | (byte(1) & 0x3F);
    case 3: return (byte(0) & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F);
    default: return (byte(0) & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F);
  }
}

// Where the character before `position` begins; position > 0.
inline size_t character_before(std::string_view text, size_t position) {
  do --position;
  while (position > 0 && !starts_character(text[position]));
  return position;
}

size_t count_characters(std::string_view text);

// Appends `character` and returns how many bytes it has.
inline uint32_t append_character(std::string& text, char32_t character) {
  const auto put = [&](char32_t byte) { text.push_back(static_cast<char>(byte)); };
  if (character < 0x80) {
    put(character);
    return 1;
  }
  if (character < 0x800) {
    put(0xC0 | character >> 6);
    put(0x80 | (character & 0x3F));
    return 2;
  }
  if (character < 0x10000) {
    put(0xE0 | character >> 12);
    put(0x80 | (character >> 6 & 0x3F));
    put(0x80 | (character & 0x3F));
    return 3;
  }
  put(0xF0 | character >> 18);
  put(0x80 | (character >> 12 & 0x3F));
  put(0x80 | (character >> 6 & 0x3F));
  put(0x80 | (character & 0x3F));
  return 4;
}

}  // namespace trireme::trainer
