#include "trireme/ccl/node/huge_pages.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <string>

#include "trireme/base/env.h"

namespace trireme::ccl {
namespace {

#ifndef MADV_COLLAPSE
constexpr int MADV_COLLAPSE = 25;  // Linux 6.1; the C library's headers are older
#endif

// A buffer that is seen so often will be seen again.
constexpr uint32_t kRecurring = 3;
// Memory may have been freed and allocated again at the same address: after so many times the kernel is asked again, and then ever less often. Asking costs 1 us and 0.2 us a huge
// page on 2 cores where nothing is to be done, more on many.
constexpr uint32_t kFirstPause = 16, kMostPause = 256;
// The same where it had no huge page to give, which may take it milliseconds to find out.
constexpr uint32_t kMostPauseRefused = 4096;
// So much at a time: nobody drives the communicator meanwhile.
constexpr size_t kPiece = 64 << 20;
constexpr size_t kMostBuffers = 4096;

uintptr_t round_up(uintptr_t address, size_t unit) { return (address + unit - 1) / unit * unit; }
uintptr_t round_down(uintptr_t address) { return address / kHugePage * kHugePage; }

// The huge pages of [begin, end).
bool collapse_pages(uintptr_t begin, uintptr_t end) { return begin < end && madvise(reinterpret_cast<void*>(begin), end - begin, MADV_COLLAPSE) == 0; }

std::string first_line(const char* path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

}  // namespace

bool huge_pages_wanted() {
  if (!env::flag("TRIREME_HUGE_PAGES")) return false;
  const std::string setting = first_line("/sys/kernel/mm/transparent_hugepage/enabled");
  return !setting.empty() && setting.find("[never]") == std::string::npos &&
         first_line("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size") == std::to_string(kHugePage);
}

void* map_on_huge_page(size_t bytes, int flags, int fd) {
  void* reserved = bytes < kHugePage ? MAP_FAILED : mmap(nullptr, bytes + kHugePage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved == MAP_FAILED) return mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, fd, 0);
  const auto begin = reinterpret_cast<uintptr_t>(reserved), at = round_up(begin, kHugePage);
  void* memory = mmap(reinterpret_cast<void*>(at), bytes, PROT_READ | PROT_WRITE, flags | MAP_FIXED, fd, 0);
  const int error = errno;
  if (memory == MAP_FAILED) {
    munmap(reserved, bytes + kHugePage);
  } else {
    const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    const uintptr_t end = round_up(at + bytes, page), reserved_end = round_up(begin + bytes + kHugePage, page);
    if (at > begin) munmap(reserved, at - begin);
    if (reserved_end > end) munmap(reinterpret_cast<void*>(end), reserved_end - end);
  }
  errno = error;
  return memory;
}

bool collapse(void* data, size_t bytes) {
  const auto address = reinterpret_cast<uintptr_t>(data);
  return collapse_pages(round_up(address, kHugePage), round_down(address + bytes));
}

bool collapse_with_ends(void* data, size_t bytes) {
  const auto begin = reinterpret_cast<uintptr_t>(data), end = begin + bytes;
  const uintptr_t nearest_begin = round_down(begin + kHugePage / 2 - 1), nearest_end = round_down(end + kHugePage / 2);
  if (collapse_pages(nearest_begin, nearest_end)) return true;
  const uintptr_t first = round_up(begin, kHugePage), last = round_down(end);
  const bool before = nearest_begin < first && collapse_pages(nearest_begin, nearest_begin + kHugePage);
  const bool behind = last < nearest_end && last >= first && collapse_pages(last, nearest_end);
  return first < last ? collapse_pages(first, last) : before || behind;
}

void RecurringBuffers::saw_large(const void* data, size_t bytes) {
  if (buffers_.size() >= kMostBuffers) buffers_.clear();
  Buffer& buffer = buffers_[data];
  // A part of it, say a rank's own share. Unless that is all that is left.
  if (bytes < buffer.bytes && ++buffer.smaller < kMostPause) return;
  if (bytes != buffer.bytes) buffer = {.bytes = bytes, .next = kRecurring, .pause = kFirstPause};
  buffer.smaller = 0;
  if (++buffer.times < buffer.next) return;
  const size_t piece = std::min(bytes - buffer.done, kPiece);
  buffer.refused |= !collapse_with_ends(static_cast<std::byte*>(const_cast<void*>(data)) + buffer.done, piece);
  buffer.done += piece;
  if (buffer.done < bytes) return;
  buffer.next = buffer.times + buffer.pause;
  buffer.pause = std::min(2 * buffer.pause, buffer.refused ? kMostPauseRefused : kMostPause);
  buffer.done = 0;
  buffer.refused = false;
}

}  // namespace trireme::ccl
