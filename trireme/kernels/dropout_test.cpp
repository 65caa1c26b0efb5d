#include "trireme/kernels/dropout.h"

#include <cmath>
#include <limits>

#include "trireme/base/error.h"
#include "trireme/kernels/kernel_test.h"

namespace trireme::kernels {
namespace {

class DropoutTest : public EachIsa {};
TRIREME_EACH_ISA(DropoutTest);

// Philox4x32-7 of the counter and key (0, 0, 0, 0), (0, 0): the known-answer test of the authors' Random123.
TEST(Philox, KnownAnswer) {
  // 5f6fb709 0d893f64 4f121f81 4f730a48, 16 bits a column: columns 0, 16, 32, ... of block 0.
  const uint32_t expected[8] = {0xb709, 0x5f6f, 0x3f64, 0x0d89, 0x1f81, 0x4f12, 0x0a48, 0x4f73};
  for (uint32_t i = 0; i < 8; ++i) {
    EXPECT_TRUE(keeps_ref({0, expected[i], 1}, 0, 0, 16 * i)) << i;
    EXPECT_FALSE(keeps_ref({0, expected[i] + 1, 1}, 0, 0, 16 * i)) << i;
  }
}

TEST_P(DropoutTest, AgreesWithReferenceAtEverySize) {
  for (int64_t columns : {1, 3, 15, 16, 17, 64, 127, 128, 129, 384, 1000}) {
    const int64_t rows = 7;
    std::vector<float> x = normal(rows * columns, 1), fast(x.size()), reference(x.size());
    Dropout some = make_dropout(0.3, 0x123456789abcdef);
    dropout(x.data(), fast.data(), rows, columns, some);
    dropout_ref(x.data(), reference.data(), rows, columns, some);
    EXPECT_EQ(fast, reference) << columns;
    dropout(x.data(), x.data(), rows, columns, some);
    EXPECT_EQ(x, reference) << columns << " in place";
  }
}

TEST_P(DropoutTest, Bfloat16KeepsTheSameElements) {
  const int64_t rows = 5, columns = 200;
  std::vector<bfloat16> x = to_bfloat16(std::vector<float>(rows * columns, 1)), y(x.size());
  Dropout half = make_dropout(0.5, 7);
  dropout(x.data(), y.data(), rows, columns, half);
  for (int64_t i = 0; i < rows * columns; ++i)
    EXPECT_EQ(trireme::to_float(y[i]), keeps_ref(half, 0, i / columns, i % columns) ? 2.0f : 0.0f);
}

TEST_P(DropoutTest, NanStaysNan) {
  std::vector<float> x(256, std::numeric_limits<float>::quiet_NaN()), y(256);
  Dropout some = make_dropout(0.1, 3);
  dropout(x.data(), y.data(), 2, 128, some);
  for (int i = 0; i < 256; ++i) EXPECT_EQ(std::isnan(y[i]), keeps_ref(some, 0, i / 128, i % 128));
}

TEST_P(DropoutTest, RateAndExpectation) {
  const int64_t rows = 1000, columns = 1024;
  std::vector<float> ones(rows * columns, 1), y(ones.size());
  for (double p : {0.1, 0.5, 0.9}) {
    dropout(ones.data(), y.data(), rows, columns, make_dropout(p, 99));
    double kept = 0, total = 0;
    for (float each : y) kept += each != 0, total += each;
    double n = static_cast<double>(y.size()), deviation = std::sqrt(p * (1 - p) / n);
    EXPECT_NEAR(kept / n, 1 - p, 5 * deviation + 1.0 / 65536);
    EXPECT_NEAR(total / n, 1, 5 * deviation / (1 - p));
  }
}

// Of two masks that have nothing to do with each other, the elements that both keep are (1 - p)^2 of all.
void expect_independent(const std::vector<float>& a, const std::vector<float>& b, double p) {
  double both = 0, n = static_cast<double>(a.size());
  for (size_t i = 0; i < a.size(); ++i) both += a[i] != 0 && b[i] != 0;
  double expected = (1 - p) * (1 - p);
  EXPECT_NEAR(both / n, expected, 5 * std::sqrt(expected * (1 - expected) / n));
}

TEST_P(DropoutTest, SeedsRowsAndColumnsAreIndependent) {
  const int64_t rows = 512, columns = 512;
  std::vector<float> ones(rows * columns, 1), a(ones.size()), b(ones.size());
  for (uint64_t other : {uint64_t{1}, uint64_t{1} << 32, uint64_t{0xdeadbeef}}) {
    dropout(ones.data(), a.data(), rows, columns, make_dropout(0.5, 0));
    dropout(ones.data(), b.data(), rows, columns, make_dropout(0.5, other));
    expect_independent(a, b, 0.5);
  }
  for (int64_t shift : {int64_t{1}, int64_t{16}, int64_t{128}, columns})
    expect_independent({a.begin(), a.end() - shift}, {a.begin() + shift, a.end()}, 0.5);
}

TEST(MakeDropout, Ends) {
  EXPECT_FALSE(make_dropout(0, 1).active());
  EXPECT_TRUE(make_dropout(1e-9, 1).active());
  std::vector<float> x(100, 1);
  dropout(x.data(), x.data(), 10, 10, make_dropout(1, 1));
  EXPECT_EQ(x, std::vector<float>(100, 0));
  EXPECT_THROW(make_dropout(-0.1, 1), InvalidArgument);
  EXPECT_THROW(make_dropout(1.1, 1), InvalidArgument);
  EXPECT_THROW(make_dropout(std::numeric_limits<double>::quiet_NaN(), 1), InvalidArgument);
}

}  // namespace
}  // namespace trireme::kernels
