#include "trireme/trainer/tokenizer/utf8.h"

#include <algorithm>
#include <cstring>

#include "trireme/base/error.h"

namespace trireme::trainer {
namespace {

// Bytes of the well-formed character at the beginning of `text`, 0 if there is none (Unicode 15, table 3-7).
size_t well_formed(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const auto continues = [&](size_t i) { return i < text.size() && !starts_character(text[i]); };
  const uint8_t lead = byte(0);
  if (lead < 0x80) return 1;
  if (lead < 0xC2 || lead > 0xF4 || !continues(1)) return 0;
  if (lead < 0xE0) return 2;
  const uint8_t second = byte(1);
  if ((lead == 0xE0 && second < 0xA0) || (lead == 0xED && second > 0x9F)) return 0;
  if ((lead == 0xF0 && second < 0x90) || (lead == 0xF4 && second > 0x8F)) return 0;
  if (!continues(2)) return 0;
  if (lead < 0xF0) return 3;
  return continues(3) ? 4 : 0;
}

}  // namespace

void check_utf8(std::string_view text, std::string_view what) {
  for (size_t i = 0; i < text.size();) {
    const size_t bytes = well_formed(text.substr(i));
    if (bytes == 0) throw InvalidArgument(str(what, " is not UTF-8: byte ", i, " begins no character"));
    i += bytes;
  }
}

bool is_ascii(std::string_view text) {
  uint64_t seen = 0;
  size_t i = 0;
  for (; i + 8 <= text.size(); i += 8) {
    uint64_t eight;
    std::memcpy(&eight, text.data() + i, 8);
    seen |= eight;
  }
  for (; i < text.size(); ++i) seen |= static_cast<uint8_t>(text[i]) & 0x80;
  return (seen & 0x8080808080808080) == 0;
}

size_t count_characters(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), starts_character));
}

}  // namespace trireme::trainer
