#include "trireme/base/float16.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace trireme {
namespace {

// The nearest of all finite values of a 16-bit format, ties to even bits, by search: the definition, not the trick.
template <class Half>
double value_of(uint16_t bits) {
  return to_float(Half{bits});
}

template <class Half>
uint16_t nearest(float x, uint16_t infinity) {
  uint16_t below = 0, above = infinity;
  while (above - below > 1) {
    uint16_t middle = static_cast<uint16_t>((below + above) / 2);
    (value_of<Half>(middle) <= x ? below : above) = middle;
  }
  // Past the largest finite number the next step counts as if the format went on: that is where rounding to infinity begins.
  double top = above == infinity ? 2 * value_of<Half>(below) - value_of<Half>(static_cast<uint16_t>(below - 1))
                                 : value_of<Half>(above);
  double down = x - value_of<Half>(below), up = top - x;
  if (down != up) return down < up ? below : above;
  return below % 2 == 0 ? below : above;
}

TEST(Float16, EveryPatternSurvivesTheRoundTrip) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    float16 half{static_cast<uint16_t>(bits)};
    float wide = to_float(half);
    if (std::isnan(wide))
      EXPECT_TRUE(std::isnan(to_float(to_float16(wide)))) << bits;
    else
      EXPECT_EQ(to_float16(wide).bits, half.bits);
  }
}

TEST(Bfloat16, EveryPatternSurvivesTheRoundTrip) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    bfloat16 half{static_cast<uint16_t>(bits)};
    float wide = to_float(half);
    if (std::isnan(wide))
      EXPECT_TRUE(std::isnan(to_float(to_bfloat16(wide)))) << bits;
    else
      EXPECT_EQ(to_bfloat16(wide).bits, half.bits);
  }
}

// A prime step visits every exponent with all sorts of mantissas.
TEST(Float16, RoundsToNearestEven) {
  for (uint32_t bits = 0; bits < 0x7f800000; bits += 99991) {
    float x = std::bit_cast<float>(bits);
    uint16_t expected = x >= 65520.0f ? 0x7c00 : nearest<float16>(x, 0x7c00);
    ASSERT_EQ(to_float16(x).bits, expected) << x;
    ASSERT_EQ(to_float16(-x).bits, expected | 0x8000) << x;
  }
}

TEST(Bfloat16, RoundsToNearestEven) {
  for (uint32_t bits = 0; bits < 0x7f800000; bits += 99991) {
    float x = std::bit_cast<float>(bits);
    uint16_t expected = nearest<bfloat16>(x, 0x7f80);
    ASSERT_EQ(to_bfloat16(x).bits, expected) << x;
    ASSERT_EQ(to_bfloat16(-x).bits, expected | 0x8000) << x;
  }
}

TEST(Float16, TiesGoToTheEvenNeighbour) {
  EXPECT_EQ(to_float16(1.0f + 0x1p-11f).bits, 0x3c00);
  EXPECT_EQ(to_float16(1.0f + 3 * 0x1p-11f).bits, 0x3c02);
  EXPECT_EQ(to_float16(0x1p-25f).bits, 0);  // half of the smallest subnormal
  EXPECT_EQ(to_float16(3 * 0x1p-25f).bits, 2);
  EXPECT_EQ(to_bfloat16(1.0f + 0x1p-8f).bits, 0x3f80);
  EXPECT_EQ(to_bfloat16(1.0f + 3 * 0x1p-8f).bits, 0x3f82);
}

TEST(Float16, OverflowIsInfinity) {
  EXPECT_EQ(to_float16(65519.0f).bits, 0x7bff);
  EXPECT_EQ(to_float16(65520.0f).bits, 0x7c00);
  EXPECT_EQ(to_float16(-std::numeric_limits<float>::infinity()).bits, 0xfc00);
  EXPECT_EQ(to_bfloat16(std::numeric_limits<float>::max()).bits, 0x7f80);
}

// A payload in the lower bits alone must not round to infinity.
TEST(Float16, NanStaysNan) {
  for (uint32_t bits : {0x7f800001u, 0xff800001u, 0x7fffffffu, 0x7fc00000u}) {
    float nan = std::bit_cast<float>(bits);
    EXPECT_TRUE(std::isnan(to_float(to_float16(nan))));
    EXPECT_TRUE(std::isnan(to_float(to_bfloat16(nan))));
  }
}

}  // namespace
}  // namespace trireme
