#include "trireme/ccl/node/huge_pages.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <limits>
#include <string>

#include "trireme/base/env.h"

namespace trireme::ccl {
namespace {

#ifndef MADV_COLLAPSE
constexpr int MADV_COLLAPSE = 25;  // Linux 6.1; the C library's headers are older
#endif

// A buffer that is seen so often will be seen again.
constexpr uint32_t kRecurring = 3;
// Memory may have been freed and allocated again at the same address. Asking costs 0.2 us a huge page where nothing is to be done, and 1 us for the call.
constexpr uint32_t kAskAgain = 16;
// Where the kernel has no huge page to give, it is asked ever less often.
constexpr uint32_t kMostPause = 4096;

uintptr_t round_up(uintptr_t address) { return (address + kHugePage - 1) / kHugePage * kHugePage; }
uintptr_t round_down(uintptr_t address) { return address / kHugePage * kHugePage; }

// The huge pages of [begin, end).
Collapsed collapse_pages(uintptr_t begin, uintptr_t end) {
  if (begin >= end) return Collapsed::never;
  if (madvise(reinterpret_cast<void*>(begin), end - begin, MADV_COLLAPSE) == 0) return Collapsed::yes;
  return errno == EINVAL || errno == ENOSYS || errno == EPERM ? Collapsed::never : Collapsed::not_now;
}

}  // namespace

bool huge_pages_wanted() {
  if (!env::flag("TRIREME_HUGE_PAGES")) return false;
  std::ifstream file("/sys/kernel/mm/transparent_hugepage/enabled");
  std::string setting;
  return std::getline(file, setting) && setting.find("[never]") == std::string::npos;
}

void* map_on_huge_page(size_t bytes, int flags, int fd) {
  if (bytes < kHugePage) return mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, fd, 0);
  void* reserved = mmap(nullptr, bytes + kHugePage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved == MAP_FAILED) return MAP_FAILED;
  const auto begin = reinterpret_cast<uintptr_t>(reserved), at = round_up(begin);
  void* memory = mmap(reinterpret_cast<void*>(at), bytes, PROT_READ | PROT_WRITE, flags | MAP_FIXED, fd, 0);
  const int error = errno;
  if (memory == MAP_FAILED) {
    munmap(reserved, bytes + kHugePage);
  } else {
    constexpr size_t kPage = 4096;
    const uintptr_t end = (at + bytes + kPage - 1) / kPage * kPage, reserved_end = begin + bytes + kHugePage;
    if (at > begin) munmap(reserved, at - begin);
    if (reserved_end > end) munmap(reinterpret_cast<void*>(end), reserved_end - end);
  }
  errno = error;
  return memory;
}

Collapsed collapse(void* data, size_t bytes) {
  const auto address = reinterpret_cast<uintptr_t>(data);
  return collapse_pages(round_up(address), round_down(address + bytes));
}

Collapsed collapse_with_ends(void* data, size_t bytes) {
  const auto begin = reinterpret_cast<uintptr_t>(data), end = begin + bytes;
  const uintptr_t first = round_up(begin), last = round_down(end);
  Collapsed collapsed = collapse_pages(first, last);
  auto fills_half = [&](uintptr_t page) { return std::min(end, page + kHugePage) - std::max(begin, page) >= kHugePage / 2; };
  if (first != begin && fills_half(first - kHugePage)) collapsed = std::min(collapsed, collapse_pages(first - kHugePage, first));
  if (last != end && last >= first && fills_half(last)) collapsed = std::min(collapsed, collapse_pages(last, last + kHugePage));
  return collapsed;
}

void RecurringBuffers::saw_large(const void* data, size_t bytes) {
  Buffer& buffer = buffers_[(reinterpret_cast<uintptr_t>(data) / 4096 * 0x9E3779B97F4A7C15u >> 32) % buffers_.size()];
  if (buffer.data != data) buffer = {data, 0, kRecurring, kAskAgain};
  if (++buffer.times < buffer.next) return;
  switch (collapse_with_ends(const_cast<void*>(data), bytes)) {
    case Collapsed::yes: buffer.pause = kAskAgain; break;
    case Collapsed::not_now: buffer.pause = std::min(2 * buffer.pause, kMostPause); break;
    case Collapsed::never: buffer.pause = std::numeric_limits<uint32_t>::max() - buffer.times; break;
  }
  buffer.next = buffer.times + buffer.pause;
}

}  // namespace trireme::ccl
