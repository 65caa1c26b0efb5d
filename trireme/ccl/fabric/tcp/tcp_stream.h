// A TCP connection as a byte stream.
#pragma once

#include <array>

#include "trireme/ccl/bootstrap/forked_child.h"
#include "trireme/ccl/engine/stream.h"

namespace trireme::ccl {

class TcpStream final : public Stream {
 public:
  // Takes a proved, tuned, non-blocking connection.
  explicit TcpStream(UniqueFd fd) : fd_(std::move(fd)) {}
  size_t write(std::span<const iovec> pieces) override;
  size_t read(std::span<const iovec> pieces) override;
  int fd() const override { return fd_.get(); }

 private:
  size_t take_buffered(const iovec& piece);
  bool fill_buffer();

  ProcessFd fd_;
  // Headers are read ahead together with what follows them: one system call for a small message instead of three.
  std::array<std::byte, 16384> buffer_;
  size_t begin_ = 0, end_ = 0;
};

}  // namespace trireme::ccl
