#include "trireme/ccl/node/huge_pages.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <fstream>

#include "trireme/ccl/node/segment.h"
#include "trireme/ccl/node/test_huge_pages.h"

namespace trireme::ccl {
namespace {

constexpr size_t kPage = 4096;

// Private memory of a mapping of its own, in small pages: `before` bytes past a huge page's boundary.
struct Buffer {
  explicit Buffer(size_t size, size_t before = 0)
      : bytes(size + before), mapping(static_cast<std::byte*>(map_on_huge_page(bytes, MAP_PRIVATE | MAP_ANONYMOUS, -1))), data(mapping + before) {
    madvise(mapping, bytes, MADV_NOHUGEPAGE);
    fill();
  }
  ~Buffer() { munmap(mapping, bytes); }
  Buffer(const Buffer&) = delete;
  void fill() {
    for (size_t i = 0; i < bytes; ++i) mapping[i] = static_cast<std::byte>(i * 7 + i / kPage);
    madvise(mapping, bytes, MADV_HUGEPAGE);
  }
  bool whole() const {
    for (size_t i = 0; i < bytes; ++i)
      if (mapping[i] != static_cast<std::byte>(i * 7 + i / kPage)) return false;
    return true;
  }
  size_t bytes;
  std::byte* mapping;
  std::byte* data;
};

class HugePages : public testing::Test {
 protected:
  void SetUp() override {
    Buffer probe(4 * kHugePage);
    Segment segment = Segment::create(2, kHugePage, false);
    segment.populate_staging(0, false);
    if (!huge_pages_wanted() || !collapse(probe.data, 4 * kHugePage) || !collapse(segment.staging(0), kHugePage)) GTEST_SKIP() << "this kernel has no huge page to give, or does not collapse";
  }
};

TEST(MapOnHugePage, BeginsWhereOneCan) {
  for (size_t bytes : {kHugePage, kHugePage + 1, 3 * kHugePage - kPage, size_t{100}}) {
    auto memory = static_cast<std::byte*>(map_on_huge_page(bytes, MAP_PRIVATE | MAP_ANONYMOUS, -1));
    ASSERT_NE(memory, MAP_FAILED);
    if (bytes >= kHugePage) {
      EXPECT_EQ(reinterpret_cast<uintptr_t>(memory) % kHugePage, 0u);
    }
    memory[0] = memory[bytes - 1] = std::byte{1};
    EXPECT_EQ(munmap(memory, bytes), 0);
  }
}

TEST(MapOnHugePage, LeavesNothingMappedBesides) {
  auto mapped = [] {
    std::ifstream statm("/proc/self/statm");
    size_t pages = 0;
    statm >> pages;
    return pages * kPage;
  };
  mapped();  // the stream's own memory
  const size_t before = mapped();
  void* memory = map_on_huge_page(5 * kHugePage + kPage, MAP_PRIVATE | MAP_ANONYMOUS, -1);
  EXPECT_EQ(mapped() - before, 5 * kHugePage + kPage);
  munmap(memory, 5 * kHugePage + kPage);
}

TEST(MapOnHugePage, FailsAsMmapDoes) {
  EXPECT_EQ(map_on_huge_page(kHugePage, MAP_SHARED, -1), MAP_FAILED);
  EXPECT_EQ(errno, EBADF);
}

TEST_F(HugePages, LieOnlyWithinTheBuffer) {
  Buffer buffer(4 * kHugePage, kPage);
  ASSERT_EQ(huge_bytes_at(buffer.data), 0u);
  EXPECT_TRUE(collapse(buffer.data, 4 * kHugePage - kPage));
  EXPECT_EQ(huge_bytes_at(buffer.data), 3 * kHugePage);
  EXPECT_TRUE(buffer.whole());
  EXPECT_FALSE(collapse(buffer.data, kHugePage)) << "holds no whole huge page";
}

// malloc's buffers begin anywhere.
TEST_F(HugePages, TakeInTheEndsThatABufferFillsByHalf) {
  constexpr size_t kHalf = kHugePage / 2;
  Buffer buffer(4 * kHugePage);
  EXPECT_TRUE(collapse_with_ends(buffer.data + kHalf + kPage, 2 * kHugePage)) << "a little less than half of the first, more of the third";
  EXPECT_EQ(huge_bytes_at(buffer.data), 2 * kHugePage);
  EXPECT_TRUE(collapse_with_ends(buffer.data + kHalf, 2 * kHugePage)) << "half of the first";
  EXPECT_EQ(huge_bytes_at(buffer.data), 3 * kHugePage);
  EXPECT_TRUE(buffer.whole());

  Buffer alone(2 * kHugePage);  // and then only its middle is mapped
  munmap(alone.mapping, kHalf);
  munmap(alone.mapping + kHalf + kHugePage, kHalf);
  std::byte* middle = alone.mapping + kHalf;
  EXPECT_FALSE(collapse_with_ends(middle, kHugePage));
  EXPECT_EQ(huge_bytes_at(middle), 0u);
  EXPECT_EQ(middle[kPage], static_cast<std::byte>((kHalf + kPage) * 7 + (kHalf + kPage) / kPage));
}

TEST_F(HugePages, AreForBuffersThatComeBack) {
  Buffer buffer(2 * kHugePage), small(kHugePage, kPage);
  RecurringBuffers recurring(true);
  for (int time = 1; time <= 3; ++time) {
    EXPECT_EQ(huge_bytes_at(buffer.data), 0u) << "before time " << time;
    recurring.saw(buffer.data, 2 * kHugePage);
    recurring.saw(small.data, kHugePage - kPage);
  }
  EXPECT_EQ(huge_bytes_at(buffer.data), 2 * kHugePage);
  EXPECT_EQ(huge_bytes_at(small.data), 0u);
  EXPECT_TRUE(buffer.whole());
}

// Of a buffer and its first part, which a rank sends of an allgather in place, the buffer counts.
TEST_F(HugePages, AreForTheWholeOfABuffer) {
  Buffer buffer(3 * kHugePage);
  RecurringBuffers recurring(true);
  for (int time = 1; time <= 3; ++time) {
    recurring.saw(buffer.data, kHugePage);
    recurring.saw(buffer.data, 3 * kHugePage);
  }
  EXPECT_EQ(huge_bytes_at(buffer.data), 3 * kHugePage);
  Buffer shorter(3 * kHugePage);
  for (int time = 1; time <= 2; ++time) recurring.saw(shorter.data, 3 * kHugePage);
  for (int time = 1; time <= 300; ++time) recurring.saw(shorter.data, 2 * kHugePage);
  EXPECT_EQ(huge_bytes_at(shorter.data), 2 * kHugePage) << "the rest is no longer used";
}

// What a program frees and allocates anew often lies at the same address.
TEST_F(HugePages, ComeBackWithNewMemoryAtTheSameAddress) {
  Buffer buffer(kHugePage);
  RecurringBuffers recurring(true);
  for (int time = 0; time < 3; ++time) recurring.saw(buffer.data, kHugePage);
  ASSERT_EQ(huge_bytes_at(buffer.data), kHugePage);
  ASSERT_EQ(mmap(buffer.mapping, buffer.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0), buffer.mapping);
  madvise(buffer.mapping, buffer.bytes, MADV_NOHUGEPAGE);
  buffer.fill();
  ASSERT_EQ(huge_bytes_at(buffer.data), 0u);
  for (int time = 0; time < 20; ++time) recurring.saw(buffer.data, kHugePage);
  EXPECT_EQ(huge_bytes_at(buffer.data), kHugePage);
  EXPECT_TRUE(buffer.whole());
}

TEST_F(HugePages, AreNotForThoseWhoDoNotWantThem) {
  Buffer buffer(kHugePage);
  RecurringBuffers recurring(false);
  for (int time = 0; time < 40; ++time) recurring.saw(buffer.data, kHugePage);
  EXPECT_EQ(huge_bytes_at(buffer.data), 0u);
  setenv("TRIREME_HUGE_PAGES", "0", 1);
  EXPECT_FALSE(huge_pages_wanted());
  unsetenv("TRIREME_HUGE_PAGES");
}

// Read-only memory, memory that is not mapped: nothing happens.
TEST_F(HugePages, AreRefusedInSilence) {
  RecurringBuffers recurring(true);
  void* nothing = mmap(nullptr, 4 * kHugePage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  munmap(nothing, 4 * kHugePage);
  for (int time = 0; time < 40; ++time) recurring.saw(nothing, 4 * kHugePage);
  Buffer buffer(kHugePage);
  mprotect(buffer.mapping, buffer.bytes, PROT_READ);
  for (int time = 0; time < 40; ++time) recurring.saw(buffer.data, kHugePage);
  EXPECT_TRUE(buffer.whole());
}

// Each rank asks for its own part; who has mapped it in small pages before finds huge ones when it comes again.
TEST_F(HugePages, LieUnderTheSlots) {
  Segment mine = Segment::create(2, kHugePage, false);
  Segment theirs = Segment::open(UniqueFd(dup(mine.fd())), 2, kHugePage);
  theirs.populate_staging(1, false);
  mine.populate_staging(0, true);
  mine.populate_early(0, true);
  EXPECT_EQ(huge_bytes_at(mine.staging(0)), 2 * kHugePage);
  mine.staging(0)[5] = std::byte{5};
  EXPECT_EQ(theirs.staging(0)[5], std::byte{5});
  EXPECT_EQ(huge_bytes_at(theirs.staging(0)), kHugePage);
}

}  // namespace
}  // namespace trireme::ccl
