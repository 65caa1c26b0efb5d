// Base64 with its padding (RFC 4648, section 4).
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace trireme::trainer {

// Nothing if it is not base64: another character, a length that is no multiple of four, bits left over.
std::optional<std::string> decode_base64(std::string_view text);

}  // namespace trireme::trainer
