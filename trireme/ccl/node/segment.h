// The shared memory of one communicator's ranks on one host: its layout, and the mapping of it.
//
// A segment is a memfd whose descriptor is passed over a UNIX socket (no name to leak after a SIGKILL, no /dev/shm limit), or plain
// memory when the ranks are threads of one process. Pages that are never touched cost nothing.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "trireme/base/fd.h"
#include "trireme/ccl/signature.h"

namespace trireme::ccl {

inline constexpr int kMaxLocalRanks = 256;
inline constexpr size_t kCacheLine = 64;
// What different ranks write lies this far apart: the prefetcher fetches lines in pairs, and would take a neighbour's along.
inline constexpr size_t kApart = 128;
// Messages up to this size travel inside the record that announces them.
inline constexpr size_t kInlineBytes = 8192;
inline constexpr size_t kTinyBytes = 32;
inline constexpr size_t kRingBytes = 64 * 1024;
// Messages of more than kEarlyLeast and up to kEarlyBytes may lie in shared memory before the ranks meet. The memory for them is used in turn, and is
// larger than a second-level cache for the reason that slots are: see docs/decisions/2026-11-17-the-way-is-measured.md. Writing into a line that another
// core has just read, as an inline slot's are, costs up to 26 ns: from some lines on, the early slot is the faster one.
inline constexpr size_t kEarlyLeast = 512;
inline constexpr size_t kEarlyBytes = 256 * 1024;
inline constexpr size_t kEarlyAreaBytes = 2 << 20;

// How a peer reaches a buffer: an address in the owner's memory, or an offset in a region that others can map.
struct View {
  uint64_t address = 0;
  uint64_t bytes = 0;
  uint32_t region = 0;  // 0: private memory
  uint32_t unused = 0;
};

// What a rank announces when it enters an operation. Its first cache line is all that a tiny operation needs to pass on.
struct alignas(kApart) Record {
  std::atomic<uint64_t> number;  // of the operation, written last; another one means that the rank has left
  Signature signature;
  struct Manner {
    uint32_t placement;  // a Placement
    uint32_t inlined;    // what it sends lies in its inline slot, or in its early one
    uint32_t reachable;  // peers may read and write this rank's buffers directly
    uint32_t mapped;     // some of them through plain pointers
    uint32_t way;        // of the host's first rank: the Way that it has chosen for all; of the others: the one by which an early slot was filled
  };
  union {
    std::byte tiny[kTinyBytes];  // a payload that fits here
    Manner manner;               // of all other operations
  };
  View send;
  View recv;
  View blocks;  // an array of Views, one per rank of the communicator, where the operation has one block per rank
};
static_assert(offsetof(Record, send) == kCacheLine);

// A rank's line that others poll. Written by its owner alone.
struct alignas(kApart) ProgressLine {
  std::atomic<uint64_t> value;
};

// Raised by a rank while it writes into other ranks' buffers, or may be reading them as a thread of the same process: see Node.
struct alignas(kApart) TouchingLine {
  std::atomic<uint32_t> writing;
  std::atomic<uint32_t> reading;
};

// What a sleeping rank waits for.
struct alignas(kApart) SleepLine {
  static constexpr int32_t kAnything = -2;  // wake me on anything; else a ProgressWait's peer
  std::atomic<int32_t> peer;
  std::atomic<uint32_t> on_event_fd;  // sleeps in poll(), not on the futex
  std::atomic<uint64_t> target;
  std::atomic<int32_t> waits_for;  // a rank of another host, plus one; 0 for none
};

struct Poison {
  enum State : uint32_t { kNone, kWriting, kSet };
  std::atomic<uint32_t> state;
  uint32_t kind;
  int32_t rank;
  char text[1012];
};

// One direction of a byte stream between two ranks. Positions only grow; the difference is what lies in the ring.
struct RingControl {
  alignas(kApart) std::atomic<uint64_t> written;
  alignas(kApart) std::atomic<uint64_t> read;
};

struct SegmentHeader {
  uint64_t nonce;
  alignas(kApart) std::atomic<uint32_t> bell;  // the futex; every rank sleeps on it with its own bit
  alignas(kApart) std::atomic<uint64_t> sleepers[kMaxLocalRanks / 64];
  alignas(kApart) Poison poison;
};

// Where the parts of a segment lie: a function of the number of ranks and of the staging size, the same on every rank.
struct SegmentLayout {
  SegmentLayout() = default;
  SegmentLayout(int ranks, size_t staging_bytes);
  size_t ranks = 0, staging_bytes = 0, bytes = 0;
  size_t progress = 0, sleep = 0, touching = 0, record = 0, inline_slot = 0, ring_control = 0, staging = 0, early = 0, ring = 0;
};

// Owns the mapping. Immutable after construction; the memory it maps is shared by design.
class Segment {
 public:
  Segment() = default;
  // A new one, zeroed. `in_process` needs no descriptor. Throws InvalidArgument when the staging memory is too little for so many ranks.
  static Segment create(int ranks, size_t staging_bytes, bool in_process);
  // Maps one that a peer made. Throws IoError when the descriptor is not as large as it must be.
  static Segment open(UniqueFd fd, int ranks, size_t staging_bytes);
  // Another handle on the same memory, for the other threads of this process.
  Segment share() const { return *this; }

  // The descriptor to hand to peers; close it once they have it.
  int fd() const { return fd_ ? fd_->get() : -1; }
  void close_fd() { fd_.reset(); }
  explicit operator bool() const { return memory_ != nullptr; }

  int ranks() const { return static_cast<int>(layout_.ranks); }
  size_t staging_bytes() const { return layout_.staging_bytes; }
  SegmentHeader& header() const { return *at<SegmentHeader>(0); }
  ProgressLine& progress(int rank) const { return at<ProgressLine>(layout_.progress)[rank]; }
  SleepLine& sleep(int rank) const { return at<SleepLine>(layout_.sleep)[rank]; }
  TouchingLine& touching(int rank) const { return at<TouchingLine>(layout_.touching)[rank]; }
  // Two of each per rank, used in turn: see Node on why two suffice.
  Record& record(int rank, uint64_t number) const { return at<Record>(layout_.record)[turn(rank, number)]; }
  std::byte* inline_slot(int rank, uint64_t number) const {
    return at<std::byte>(layout_.inline_slot) + turn(rank, number) * kInlineBytes;
  }
  // Of `bytes`, at most kEarlyBytes. What two operations in a row use never overlaps, whatever the size of each: one lies in each half of the area.
  std::byte* early_slot(int rank, uint64_t number, size_t bytes) const {
    constexpr size_t kHalf = kEarlyAreaBytes / 2;
    const size_t room = (bytes + kApart - 1) / kApart * kApart;
    return early_area(rank) + (number & 1) * kHalf + (number / 2) % (kHalf / room) * room;
  }
  std::byte* staging(int rank) const { return at<std::byte>(layout_.staging) + static_cast<size_t>(rank) * staging_bytes(); }
  // Have the kernel provide all of the staging memory now, or a rank's early memory, so that transfers do not meet page by page what was never touched; if
  // `huge`, the rank's own in huge pages. Hints.
  void populate_staging(int rank, bool huge) const;
  void populate_early(int rank, bool huge) const;
  RingControl& ring(int from, int to) const { return at<RingControl>(layout_.ring_control)[pair(from, to)]; }
  std::byte* ring_data(int from, int to) const { return at<std::byte>(layout_.ring) + pair(from, to) * kRingBytes; }

 private:
  explicit Segment(SegmentLayout layout) : layout_(layout) {}
  void map(int fd, bool in_process);
  std::byte* early_area(int rank) const { return at<std::byte>(layout_.early) + static_cast<size_t>(rank) * kEarlyAreaBytes; }
  template <class T>
  T* at(size_t offset) const {
    return reinterpret_cast<T*>(memory_.get() + offset);
  }
  static size_t turn(int rank, uint64_t number) { return 2 * static_cast<size_t>(rank) + (number & 1); }
  size_t pair(int from, int to) const { return static_cast<size_t>(from) * layout_.ranks + static_cast<size_t>(to); }

  SegmentLayout layout_;
  std::shared_ptr<UniqueFd> fd_;
  std::shared_ptr<std::byte> memory_;  // unmaps itself
};

}  // namespace trireme::ccl
