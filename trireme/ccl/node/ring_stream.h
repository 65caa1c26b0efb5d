// A byte stream between two ranks of one host, through a ring in their segment. Single writer, single reader.
#pragma once

#include <functional>

#include "trireme/ccl/engine/stream.h"
#include "trireme/ccl/node/segment.h"

namespace trireme::ccl {

class RingStream final : public Stream {
 public:
  // `notify` rings the peer's bell after this rank has written or made room.
  RingStream(const Segment& segment, int me, int peer, std::function<void()> notify);
  size_t write(std::span<const iovec> pieces) override;
  size_t read(std::span<const iovec> pieces) override;
  int fd() const override { return -1; }

 private:
  RingControl& out_;
  RingControl& in_;
  std::byte* out_data_;
  std::byte* in_data_;
  std::function<void()> notify_;
};

}  // namespace trireme::ccl
