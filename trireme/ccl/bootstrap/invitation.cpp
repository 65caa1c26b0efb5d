#include "trireme/ccl/bootstrap/invitation.h"

#include <algorithm>
#include <charconv>
#include <limits>

#include "trireme/ccl/bootstrap/random.h"
#include "trireme/ccl/bootstrap/wire.h"

namespace trireme::ccl {

namespace {

constexpr std::string_view kOpening = "trireme-1";

// Up to the next separator, which is consumed.
std::string_view next_word(std::string_view& text, char separator) {
  const size_t end = std::min(text.find(separator), text.size());
  std::string_view word = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return word;
}

template <class Array>
Array parse_array(std::string_view hex) {
  const std::string bytes = wire::from_hex(hex);
  wire::Reader in(bytes);
  auto out = in.array<std::tuple_size_v<Array>>();
  in.expect_end();
  return out;
}

template <class Integer>
Integer parse_integer(std::string_view text) {
  Integer value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value == 0)
    throw wire::Malformed("not a number in an invitation");
  return value;
}

}  // namespace

std::string encode_invitation(const Whereabouts& at) {
  std::string text = str(kOpening, ' ', wire::to_hex(at.job), ' ', wire::to_hex(at.secret), ' ', at.size, ' ', at.port, ' ');
  const char* separator = "";
  for (const std::string& address : at.addresses) {
    if (text.size() + 1 + address.size() > kMaxInvitationBytes) break;
    text += separator + address;
    separator = ",";
  }
  return text;
}

Whereabouts decode_invitation(std::string_view text) {
  if (text.size() > kMaxInvitationBytes) throw wire::Malformed("an invitation that is too long");
  if (next_word(text, ' ') != kOpening) throw wire::Malformed("not an invitation");
  Whereabouts at;
  at.job = parse_array<JobId>(next_word(text, ' '));
  at.secret = parse_array<Secret>(next_word(text, ' '));
  at.size = parse_integer<uint32_t>(next_word(text, ' '));
  at.port = parse_integer<uint16_t>(next_word(text, ' '));
  while (!text.empty()) at.addresses.emplace_back(next_word(text, ','));
  if (at.addresses.empty()) throw wire::Malformed("an invitation without an address");
  return at;
}

Control::Invitation::Invitation(int size) {
  if (size < 1) throw InvalidArgument(str("a job has at least one rank, not ", size));
  whereabouts.job = random<JobId>();
  whereabouts.secret = random<Secret>();
  whereabouts.size = static_cast<uint32_t>(size);
  whereabouts.addresses = local_addresses();
  if (size == 1) return;
  listener = std::make_unique<AuthListener>(whereabouts.job, whereabouts.secret, whereabouts.size);
  whereabouts.port = listener->port();
}

}  // namespace trireme::ccl
