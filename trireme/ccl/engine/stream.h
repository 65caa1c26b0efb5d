// A byte stream to one peer: a TCP connection, or a ring in shared memory. The framing above it (fabric/link) is the same for both.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <span>

namespace trireme::ccl {

// One thread at a time. Never blocks.
class Stream {
 public:
  virtual ~Stream() = default;
  // Bytes taken, 0 when there is no room now. Throws IoError when the peer is gone.
  virtual size_t write(std::span<const iovec> pieces) = 0;
  // Bytes read, 0 when there is nothing now. Throws IoError when the peer is gone.
  virtual size_t read(std::span<const iovec> pieces) = 0;
  // What poll() can wait on, or -1 for shared memory (whose peers ring a bell instead).
  virtual int fd() const = 0;
};

}  // namespace trireme::ccl
