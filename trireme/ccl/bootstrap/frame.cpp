#include "trireme/ccl/bootstrap/frame.h"

#include <poll.h>

#include "trireme/ccl/bootstrap/socket.h"
#include "trireme/ccl/bootstrap/wire.h"

namespace trireme::ccl {

std::string encode_frame(uint8_t kind, std::string_view payload) {
  wire::Writer out;
  out.integer(kind);
  out.string(payload);
  return out.take();
}

char* FrameAssembler::space() { return buffer_.data() + have_; }

size_t FrameAssembler::missing() const { return buffer_.size() - have_; }

std::optional<Frame> FrameAssembler::filled(size_t bytes) {
  TRIREME_ENFORCE(bytes <= missing(), bytes, " bytes into ", missing());
  have_ += bytes;
  if (have_ < buffer_.size()) return std::nullopt;
  wire::Reader header(std::string_view(buffer_).substr(0, kFrameHeaderBytes));
  const auto kind = header.integer<uint8_t>();
  const size_t payload_bytes = header.integer<uint32_t>();
  if (payload_bytes > max_payload_bytes_) {
    throw wire::Malformed(str("a frame of ", payload_bytes, " bytes where at most ", max_payload_bytes_, " are allowed"));
  }
  if (buffer_.size() < kFrameHeaderBytes + payload_bytes) {
    buffer_.resize(kFrameHeaderBytes + payload_bytes);
    return std::nullopt;
  }
  Frame frame{kind, buffer_.substr(kFrameHeaderBytes)};
  buffer_.assign(kFrameHeaderBytes, '\0');
  have_ = 0;
  return frame;
}

std::optional<Frame> receive_some(int fd, FrameAssembler& assembler) {
  while (size_t got = recv_some(fd, assembler.space(), assembler.missing())) {
    if (auto frame = assembler.filled(got)) return frame;
  }
  return std::nullopt;
}

Frame receive_frame(int fd, size_t max_payload_bytes, Deadline deadline) {
  FrameAssembler assembler(max_payload_bytes);
  for (;;) {
    if (auto frame = receive_some(fd, assembler)) return std::move(*frame);
    if (!wait_ready(fd, POLLIN, deadline)) throw Timeout("no answer in time");
  }
}

}  // namespace trireme::ccl
