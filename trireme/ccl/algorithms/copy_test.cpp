#include "trireme/ccl/algorithms/copy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "trireme/cpu/isa.h"

namespace trireme::ccl {
namespace {

void check_copies() {
  std::vector<uint8_t> from(20'000), to(20'000);
  for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<uint8_t>(i * 7 + i / 256);
  for (size_t whole : {size_t{1}, kCopyAroundCache}) {
    for (size_t bytes : {size_t{0}, size_t{1}, size_t{63}, size_t{64}, size_t{319}, size_t{320}, size_t{4095}, size_t{4096}, size_t{4097}, size_t{10'000}}) {
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

void check_copies_to_two_places() {
  std::vector<uint8_t> from(2000), to(2000), also(2000);
  for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<uint8_t>(i * 7 + i / 256);
  for (size_t bytes : {size_t{0}, size_t{1}, size_t{63}, size_t{64}, size_t{256}, size_t{319}, size_t{1000}}) {
    for (size_t skew : {0, 1, 16, 63}) {
      std::fill(to.begin(), to.end(), uint8_t{0xee});
      std::fill(also.begin(), also.end(), uint8_t{0xdd});
      copy_twice_in_registers(to.data() + 100 + skew, also.data() + 200 - skew, from.data() + skew, bytes);
      for (size_t i = 0; i < bytes; ++i) {
        ASSERT_EQ(to[100 + skew + i], from[skew + i]) << "byte " << i << " of " << bytes << ", skew " << skew;
        ASSERT_EQ(also[200 - skew + i], from[skew + i]) << "byte " << i << " of " << bytes << ", skew " << skew;
      }
      ASSERT_EQ(std::count(to.begin(), to.begin() + 100 + static_cast<ptrdiff_t>(skew), 0xee), 100 + static_cast<ptrdiff_t>(skew));
      ASSERT_EQ(to[100 + skew + bytes], 0xee);
      ASSERT_EQ(also[199 - skew], 0xdd);
      ASSERT_EQ(also[200 - skew + bytes], 0xdd);
    }
  }
}

// Every alignment of either side, sizes around lines, in the cache and around it, on every level: the bytes arrive, and no others change.
TEST(CopyOwn, CopiesEveryByteAndNoOther) {
  for (cpu::Isa level : cpu::isa_levels()) {
    cpu::ScopedIsa at(level);
    SCOPED_TRACE(cpu::name_of(level));
    check_copies();
    check_copies_to_two_places();
  }
}

}  // namespace
}  // namespace trireme::ccl
