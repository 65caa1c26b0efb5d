#include "trireme/kernels/bf16.h"

#include <bit>
#include <cstring>

#include "trireme/kernels/kernel_test.h"

namespace trireme::kernels {
namespace {

class Bf16Test : public EachIsa {};
TRIREME_EACH_ISA(Bf16Test);

// Every exponent and sign, NaNs with payloads in either half, ties, denormals: bits drawn at random and some by hand.
std::vector<float> all_kinds(int64_t n, uint32_t seed) {
  const uint32_t special[] = {0,          0x80000000, 1,          0x7f800000, 0xff800000, 0x7f800001,
                              0xff80ffff, 0x7fc00000, 0x3f808000, 0x3f818000, 0x3f808001, 0x7f7fffff,
                              0x00008000, 0x7f810000, 0xffffffff, 0x007fffff};
  std::mt19937 generator(seed);
  std::vector<float> x(n);
  for (int64_t i = 0; i < n; ++i)
    x[i] = std::bit_cast<float>(i % 3 ? static_cast<uint32_t>(generator()) : special[i / 3 % 16]);
  return x;
}

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

const int64_t kSizes[] = {0, 1, 3, 4, 7, 8, 9, 15, 16, 17, 31, 33, 100, 1000, 131072, 200001};

TEST_P(Bf16Test, ConvertsAsTheReference) {
  for (int64_t n : kSizes) {
    std::vector<float> x = all_kinds(n, 1), wide(n), wide_ref(n);
    std::vector<bfloat16> fast(n), reference(n);
    convert(x.data(), fast.data(), n);
    convert_ref(x.data(), reference.data(), n);
    EXPECT_TRUE(same_bits(fast, reference)) << n;
    convert(fast.data(), wide.data(), n);
    convert_ref(reference.data(), wide_ref.data(), n);
    EXPECT_TRUE(same_bits(wide, wide_ref)) << n;
  }
}

TEST_P(Bf16Test, SplitsAndJoinsAsTheReference) {
  for (int64_t n : kSizes) {
    std::vector<float> x = all_kinds(n, 2), joined(n), joined_ref(n);
    std::vector<bfloat16> upper(n), upper_ref(n);
    std::vector<uint16_t> lower(n), lower_ref(n);
    split(x.data(), upper.data(), lower.data(), n);
    split_ref(x.data(), upper_ref.data(), lower_ref.data(), n);
    EXPECT_TRUE(same_bits(upper, upper_ref) && same_bits(lower, lower_ref)) << n;
    join(upper.data(), lower.data(), joined.data(), n);
    join_ref(upper.data(), lower.data(), joined_ref.data(), n);
    EXPECT_TRUE(same_bits(joined, joined_ref)) << n;
    for (int64_t i = 0; i < n; ++i)
      if (x[i] == x[i])
        EXPECT_EQ(std::bit_cast<uint32_t>(joined[i]), std::bit_cast<uint32_t>(x[i]));
      else
        EXPECT_TRUE(joined[i] != joined[i] && trireme::to_float(upper[i]) != trireme::to_float(upper[i]));
  }
}

// Long enough to go past the cache, from and to addresses that are no multiple of a vector.
TEST_P(Bf16Test, LargeAndUnaligned) {
  const int64_t n = (8 << 20) + 77;
  std::vector<float> x = normal(n + 3, 3), wide(n + 5, -7);
  std::vector<bfloat16> fast(n + 5, bfloat16{0x1234});
  convert(x.data() + 3, fast.data() + 1, n);
  convert(fast.data() + 1, wide.data() + 3, n);
  EXPECT_EQ(fast[0].bits, 0x1234);
  EXPECT_EQ(fast[n + 1].bits, 0x1234);
  EXPECT_EQ(wide[2], -7);
  EXPECT_EQ(wide[n + 3], -7);
  int64_t wrong = 0;
  for (int64_t i = 0; i < n; ++i)
    wrong += fast[1 + i].bits != trireme::to_bfloat16(x[3 + i]).bits || wide[3 + i] != trireme::to_float(fast[1 + i]);
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace trireme::kernels
