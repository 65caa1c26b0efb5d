#include "trireme/trainer/squad/python_text.h"

#include <unicode/locid.h>
#include <unicode/uchar.h>
#include <unicode/unistr.h>
#include <unicode/utf8.h>

#include <nlohmann/json.hpp>

#include "trireme/base/error.h"

namespace trireme::trainer {

char32_t next_code_point(std::string_view text, size_t& at) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(text.data());
  if (bytes[at] < 0x80) return bytes[at++];
  int64_t i = static_cast<int64_t>(at);
  UChar32 c;
  U8_NEXT_OR_FFFD(bytes, i, static_cast<int64_t>(text.size()), c);
  at = static_cast<size_t>(i);
  return static_cast<char32_t>(c);
}

size_t byte_of_code_point(std::string_view text, size_t index) {
  size_t at = 0;
  for (; index > 0; --index) {
    if (at == text.size()) return std::string_view::npos;
    next_code_point(text, at);
  }
  return at;
}

// Python's rule: category Zs, or the bidirectional class WS, B or S. Unlike ICU's u_isWhitespace it takes in the spaces that
// do not break lines.
bool is_python_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0d) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0xa0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

// str.isalnum or an underscore. isalnum: letters, and whatever has a numeric value. Marks are no word characters.
bool is_python_word(char32_t c) {
  if (c < 0x80) return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  const auto code = static_cast<UChar32>(c);
  return u_isalpha(code) || u_getIntPropertyValue(code, UCHAR_NUMERIC_TYPE) != U_NT_NONE;
}

std::string_view python_lstrip(std::string_view text) {
  size_t begin = 0;
  for (size_t at = 0; at < text.size() && is_python_space(next_code_point(text, at));) begin = at;
  return text.substr(begin);
}

std::string python_lower(std::string_view text) {
  std::string lower(text);
  bool ascii = true;
  for (char& c : lower) {
    ascii = ascii && static_cast<unsigned char>(c) < 0x80;
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  if (ascii) return lower;
  lower.clear();
  return icu::UnicodeString::fromUTF8(icu::StringPiece(text.data(), static_cast<int32_t>(text.size())))
      .toLower(icu::Locale::getRoot())
      .toUTF8String(lower);
}

std::string python_json_string(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

}  // namespace trireme::trainer
