#include "trireme/ccl/node/ring_stream.h"

#include <algorithm>
#include <cstring>

namespace trireme::ccl {
namespace {

// Copies between a piece of user memory and the ring at `position`, in at most two parts where the ring wraps.
void copy_in(std::byte* ring, uint64_t position, const std::byte* data, size_t bytes) {
  size_t at = position % kRingBytes;
  size_t first = std::min(bytes, kRingBytes - at);
  if (first != 0) std::memcpy(ring + at, data, first);
  if (bytes != first) std::memcpy(ring, data + first, bytes - first);
}

void copy_out(const std::byte* ring, uint64_t position, std::byte* data, size_t bytes) {
  size_t at = position % kRingBytes;
  size_t first = std::min(bytes, kRingBytes - at);
  if (first != 0) std::memcpy(data, ring + at, first);
  if (bytes != first) std::memcpy(data + first, ring, bytes - first);
}

}  // namespace

RingStream::RingStream(const Segment& segment, int me, int peer, std::function<void()> notify)
    : out_(segment.ring(me, peer)),
      in_(segment.ring(peer, me)),
      out_data_(segment.ring_data(me, peer)),
      in_data_(segment.ring_data(peer, me)),
      notify_(std::move(notify)) {}

size_t RingStream::write(std::span<const iovec> pieces) {
  uint64_t start = out_.written.load(std::memory_order_relaxed);
  uint64_t limit = out_.read.load(std::memory_order_acquire) + kRingBytes;
  uint64_t at = start;
  for (const iovec& piece : pieces) {
    size_t bytes = std::min<size_t>(piece.iov_len, limit - at);
    copy_in(out_data_, at, static_cast<const std::byte*>(piece.iov_base), bytes);
    at += bytes;
    if (bytes < piece.iov_len) break;
  }
  if (at != start) {
    out_.written.store(at, std::memory_order_seq_cst);
    notify_();
  }
  return at - start;
}

size_t RingStream::read(std::span<const iovec> pieces) {
  uint64_t start = in_.read.load(std::memory_order_relaxed);
  uint64_t limit = in_.written.load(std::memory_order_acquire);
  uint64_t at = start;
  for (const iovec& piece : pieces) {
    size_t bytes = std::min<size_t>(piece.iov_len, limit - at);
    copy_out(in_data_, at, static_cast<std::byte*>(piece.iov_base), bytes);
    at += bytes;
    if (bytes < piece.iov_len) break;
  }
  if (at != start) {
    in_.read.store(at, std::memory_order_seq_cst);
    notify_();
  }
  return at - start;
}

}  // namespace trireme::ccl
