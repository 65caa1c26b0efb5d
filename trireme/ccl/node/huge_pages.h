// Huge pages under memory that operations use again and again. The kernel copies between processes page by page, and a core finds the pages of a few megabytes
// only: with huge ones, large operations on private buffers take half the time. See docs/decisions/2026-11-18-huge-pages.md.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace trireme::ccl {

inline constexpr size_t kHugePage = 2 << 20;

// TRIREME_HUGE_PAGES, and whether this machine's kernel may use them.
bool huge_pages_wanted();

// mmap() of zeroed or shared memory to where huge pages can begin. Returns MAP_FAILED with errno.
void* map_on_huge_page(size_t bytes, int flags, int fd);

enum class Collapsed { yes, not_now, never };
// Makes the huge pages that lie within [data, data + bytes) such, where they are not yet: a quarter of a millisecond for each that is new. Contents, addresses and
// protection stay as they are.
Collapsed collapse(void* data, size_t bytes);
// The same with those at its ends of which it fills at least half, where all of them is mapped in one piece: what lies beside it comes along.
Collapsed collapse_with_ends(void* data, size_t bytes);

// The large buffers that one communicator's operations were seen to use. Those that come back are worth huge pages. One thread at a time.
class RecurringBuffers {
 public:
  explicit RecurringBuffers(bool wanted) : wanted_(wanted) {}
  bool wanted() const { return wanted_; }
  void saw(const void* data, size_t bytes) {
    if (wanted_ && bytes >= kHugePage && data != nullptr) saw_large(data, bytes);
  }

 private:
  struct Buffer {
    const void* data = nullptr;
    uint32_t times = 0;
    uint32_t next = 0;    // collapsed when it has been seen so many times
    uint32_t pause = 0;   // between one such time and the next
  };
  void saw_large(const void* data, size_t bytes);

  bool wanted_;
  std::array<Buffer, 256> buffers_;
};

}  // namespace trireme::ccl
