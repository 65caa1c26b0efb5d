#include "trireme/ccl/node/segment.h"

#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/ccl/bootstrap/forked_child.h"
#include "trireme/ccl/node/huge_pages.h"

namespace trireme::ccl {
namespace {

constexpr size_t kPage = 4096;

size_t round_up(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

// The leaders of hosts leave small results here, two in turn; staged transfers need eight slots with a cache line for each rank.
size_t least_staging_bytes(int ranks) { return std::max(2 * kInlineBytes, 8 * static_cast<size_t>(ranks) * kCacheLine); }

}  // namespace

SegmentLayout::SegmentLayout(int rank_count, size_t staging)
    : ranks(static_cast<size_t>(rank_count)), staging_bytes(round_up(staging, kPage)) {
  size_t at = sizeof(SegmentHeader);
  auto place = [&at](size_t size, size_t alignment) {
    at = round_up(at, alignment);
    return std::exchange(at, at + size);
  };
  progress = place(ranks * sizeof(ProgressLine), kApart);
  sleep = place(ranks * sizeof(SleepLine), kApart);
  touching = place(ranks * sizeof(TouchingLine), kApart);
  record = place(2 * ranks * sizeof(Record), kApart);
  inline_slot = place(2 * ranks * kInlineBytes, kPage);
  ring_control = place(ranks * ranks * sizeof(RingControl), kApart);
  this->staging = place(ranks * staging_bytes, kHugePage);
  early = place(ranks * kEarlyAreaBytes, kHugePage);
  ring = place(ranks * ranks * kRingBytes, kPage);
  bytes = round_up(at, kPage);
}

Segment Segment::create(int ranks, size_t staging_bytes, bool in_process) {
  if (size_t needed = least_staging_bytes(ranks); staging_bytes < needed) {
    throw InvalidArgument(str("TRIREME_SEGMENT_BYTES = ", staging_bytes, ": ", ranks, " ranks on one host need at least ", needed));
  }
  Segment segment(SegmentLayout(ranks, staging_bytes));
  int fd = -1;
  if (!in_process) {
    fd = memfd_create("trireme", MFD_CLOEXEC);
    if (fd < 0) throw IoError(errno_message("memfd_create for a communicator's shared memory", errno));
    segment.fd_ = std::make_shared<UniqueFd>(fd);
    if (ftruncate(fd, static_cast<off_t>(segment.layout_.bytes)) != 0) {
      throw IoError(errno_message("growing a communicator's shared memory", errno));
    }
  }
  segment.map(fd, in_process);
  return segment;
}

Segment Segment::open(UniqueFd fd, int ranks, size_t staging_bytes) {
  Segment segment(SegmentLayout(ranks, staging_bytes));
  struct stat status {};
  if (fstat(fd.get(), &status) != 0 || static_cast<size_t>(status.st_size) < segment.layout_.bytes) {
    throw IoError("a communicator's shared memory is smaller than this rank expects; is TRIREME_SEGMENT_BYTES the same on every rank?");
  }
  segment.map(fd.get(), false);
  return segment;
}

namespace {

void populate(void* memory, size_t bytes) {
#ifdef MADV_POPULATE_WRITE
  madvise(memory, bytes, MADV_POPULATE_WRITE);
#endif
}

// The others' page tables follow when they touch it. While they do so, the kernel refuses.
void make_huge(void* memory, size_t bytes) {
  constexpr int kAttempts = 4;
  for (int attempt = 0; attempt < kAttempts && !collapse(memory, bytes); ++attempt) {
  }
}

}  // namespace

void Segment::populate_staging(int rank, bool huge) const {
  populate(staging(0), layout_.ranks * layout_.staging_bytes);
  if (huge) make_huge(staging(rank), layout_.staging_bytes);
}

void Segment::populate_early(int rank, bool huge) const {
  populate(early_area(rank), kEarlyAreaBytes);
  if (huge) make_huge(early_area(rank), kEarlyAreaBytes);
}

void Segment::map(int fd, bool in_process) {
  int flags = in_process ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
  size_t bytes = layout_.bytes;
  void* memory = map_on_huge_page(bytes, flags | MAP_NORESERVE, fd);
  if (memory == MAP_FAILED) throw IoError(errno_message("mapping a communicator's shared memory", errno));
  // A forked child (a DataLoader's worker) has no business in it.
  madvise(memory, bytes, MADV_DONTFORK);
  // There, something else may lie at its address.
  memory_ = std::shared_ptr<std::byte>(static_cast<std::byte*>(memory), [bytes, made = fork_generation()](std::byte* base) {
    if (made == fork_generation()) munmap(base, bytes);
  });
}

}  // namespace trireme::ccl
