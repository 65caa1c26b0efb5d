#include "trireme/ccl/bootstrap/wire.h"

#include <limits>

namespace trireme::ccl::wire {

void Writer::string(std::string_view data) {
  TRIREME_ENFORCE(data.size() <= std::numeric_limits<uint32_t>::max(), data.size(), " bytes");
  integer(static_cast<uint32_t>(data.size()));
  raw(data);
}

std::string_view Reader::raw(size_t bytes) {
  if (bytes > rest_.size()) throw Malformed(str("message ends ", bytes - rest_.size(), " bytes early"));
  std::string_view data = rest_.substr(0, bytes);
  rest_.remove_prefix(bytes);
  return data;
}

std::string_view Reader::string(size_t max_bytes) {
  const size_t length = integer<uint32_t>();
  if (length > max_bytes) throw Malformed(str("a length of ", length, " bytes where at most ", max_bytes, " are allowed"));
  return raw(length);
}

void Reader::expect_end() const {
  if (!rest_.empty()) throw Malformed(str(rest_.size(), " bytes too many in a message"));
}

std::string to_hex(std::string_view bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string hex;
  hex.reserve(2 * bytes.size());
  for (char c : bytes) {
    hex.push_back(kDigits[static_cast<uint8_t>(c) >> 4]);
    hex.push_back(kDigits[static_cast<uint8_t>(c) & 15]);
  }
  return hex;
}

std::string to_hex(std::span<const uint8_t> bytes) {
  return to_hex(std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
}

static int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  throw Malformed("not hexadecimal");
}

std::string from_hex(std::string_view hex) {
  if (hex.size() % 2 != 0) throw Malformed("an odd number of hexadecimal digits");
  std::string bytes;
  bytes.reserve(hex.size() / 2);
  for (size_t i = 0; i < hex.size(); i += 2)
    bytes.push_back(static_cast<char>(hex_digit(hex[i]) * 16 + hex_digit(hex[i + 1])));
  return bytes;
}

std::string printable(std::string_view text, size_t max_bytes) {
  std::string out(text.substr(0, max_bytes));
  for (char& c : out) {
    if (c < ' ' || c > '~') c = '?';
  }
  return out;
}

}  // namespace trireme::ccl::wire
