// Huge pages under memory that operations use again and again. The kernel copies between processes page by page, and a core finds the pages of a few megabytes
// only: with huge ones, large operations on private buffers take up to half the time. See docs/decisions/2026-11-18-huge-pages.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>

namespace trireme::ccl {

inline constexpr size_t kHugePage = 2 << 20;

// TRIREME_HUGE_PAGES, and whether this machine's kernel may use them and has them of that size.
bool huge_pages_wanted();

// mmap() of zeroed or shared memory, to where huge pages can begin if there is room for that. Returns MAP_FAILED with errno.
void* map_on_huge_page(size_t bytes, int flags, int fd);

// Makes the huge pages that lie within [data, data + bytes) such, where they are not yet: a quarter of a millisecond for each that is new. Contents, addresses and
// protection stay as they are. False: some of them are not, or there are none.
bool collapse(void* data, size_t bytes);
// The same with those at its ends of which it fills at least half, as far as all of such a page is mapped in one piece: what lies beside the buffer comes along. They count
// only where there are no others.
bool collapse_with_ends(void* data, size_t bytes);

// The large buffers that one communicator's operations were seen to use. Those that come back are worth huge pages. One thread at a time.
class RecurringBuffers {
 public:
  explicit RecurringBuffers(bool wanted) : wanted_(wanted) {}
  bool wanted() const { return wanted_; }
  // Now and then this takes as long as the kernel needs for some 64 MiB.
  void saw(const void* data, size_t bytes) {
    if (wanted_ && bytes >= kHugePage && data != nullptr) saw_large(data, bytes);
  }

 private:
  struct Buffer {
    size_t bytes = 0;
    uint32_t times = 0;
    uint32_t smaller = 0;  // how often less of it was seen since
    uint32_t next = 0;     // collapsed when it has been seen so many times
    uint32_t pause = 0;    // between one such time and the next
    size_t done = 0;       // of its bytes, this time
    bool refused = false;  // some of them
  };
  void saw_large(const void* data, size_t bytes);

  bool wanted_;
  std::unordered_map<const void*, Buffer> buffers_;
};

}  // namespace trireme::ccl
