// What proved connections carry: a kind, a length, and that many bytes. The length is checked against the receiver's maximum
// before a byte of it is received.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "trireme/base/deadline.h"

namespace trireme::ccl {

struct Frame {
  uint8_t kind = 0;
  std::string payload;
};

inline constexpr size_t kFrameHeaderBytes = 1 + 4;

std::string encode_frame(uint8_t kind, std::string_view payload);

// Puts frames together from bytes as they come. Knows no socket.
class FrameAssembler {
 public:
  explicit FrameAssembler(size_t max_payload_bytes) : max_payload_bytes_(max_payload_bytes) {}

  // Where the next bytes go, and how many the present frame still lacks; never 0.
  char* space();
  size_t missing() const;
  // `bytes` have been put there. The frame if it is complete now. Throws wire::Malformed for a length above the maximum.
  std::optional<Frame> filled(size_t bytes);

 private:
  const size_t max_payload_bytes_;
  std::string buffer_ = std::string(kFrameHeaderBytes, '\0');
  size_t have_ = 0;
};

// What has arrived, without waiting: a frame if that completes one. Throws ConnectionLost or wire::Malformed.
std::optional<Frame> receive_some(int fd, FrameAssembler& assembler);

// Waits for a whole frame. Throws Timeout, ConnectionLost or wire::Malformed.
Frame receive_frame(int fd, size_t max_payload_bytes, Deadline deadline);

}  // namespace trireme::ccl
