#include "trireme/ccl/algorithms/copy.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace trireme::ccl {
namespace {

// Every alignment of either side, sizes around lines, in the cache and around it: the bytes arrive, and no others change.
TEST(CopyOwn, CopiesEveryByteAndNoOther) {
  std::vector<uint8_t> from(20'000), to(20'000);
  for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<uint8_t>(i * 7 + i / 256);
  for (size_t whole : {size_t{1}, kCopyAroundCache}) {
    for (size_t bytes : {size_t{0}, size_t{1}, size_t{63}, size_t{4095}, size_t{4096}, size_t{4097}, size_t{10'000}}) {
      for (size_t skew : {0, 1, 3, 63}) {
        std::fill(to.begin(), to.end(), uint8_t{0xee});
        copy_own(to.data() + 100 + skew, from.data() + 5 * skew, bytes, whole);
        for (size_t i = 0; i < to.size(); ++i) {
          bool inside = i >= 100 + skew && i < 100 + skew + bytes;
          ASSERT_EQ(to[i], inside ? from[i - 100 - skew + 5 * skew] : 0xee) << "byte " << i << " of " << bytes << ", skew " << skew;
        }
      }
    }
  }
}

}  // namespace
}  // namespace trireme::ccl
