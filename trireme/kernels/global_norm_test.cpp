#include "trireme/kernels/global_norm.h"

#include <omp.h>

#include <cmath>
#include <limits>

#include "trireme/kernels/kernel_test.h"

namespace trireme::kernels {
namespace {

class GlobalNormTest : public EachIsa {};
TRIREME_EACH_ISA(GlobalNormTest);

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Tensors of many sizes, fp32 and bf16 in turn, from addresses that are no multiple of a vector.
struct Many {
  std::vector<std::vector<float>> fp32;
  std::vector<std::vector<bfloat16>> bf16;
  std::vector<ConstTensor> tensors;

  explicit Many(float deviation = 1) {
    uint32_t seed = 0;
    for (int64_t n : {0, 1, 5, 16, 31, 32, 33, 384, 1000, 16384, 16385, 100003}) {
      fp32.push_back(normal(n + 1, ++seed, deviation));
      bf16.push_back(trireme::kernels::to_bfloat16(normal(n + 1, ++seed, deviation)));
      tensors.push_back({.fp32 = fp32.back().data() + 1, .count = n});
      tensors.push_back({.bf16 = bf16.back().data() + 1, .count = n});
    }
  }
};

TEST_P(GlobalNormTest, AgreesWithReference) {
  Many many;
  double reference = sum_of_squares_ref(many.tensors);
  EXPECT_NEAR(sum_of_squares(many.tensors), reference, 1e-12 * reference);
  EXPECT_DOUBLE_EQ(global_norm(many.tensors), std::sqrt(sum_of_squares(many.tensors)));
  EXPECT_EQ(sum_of_squares({}), 0);
}

TEST_P(GlobalNormTest, TheSameBitsForAnyThreadsAndLevel) {
  Many many(1e10f);
  int before = omp_get_max_threads();
  double first = sum_of_squares(many.tensors);
  for (int threads : {1, 2, 3, 7}) {
    omp_set_num_threads(threads);
    EXPECT_EQ(sum_of_squares(many.tensors), first) << threads << " threads";
  }
  omp_set_num_threads(before);
  cpu::ScopedIsa lowest(cpu::Isa::scalar);
  EXPECT_EQ(sum_of_squares(many.tensors), first);
}

TEST_P(GlobalNormTest, LargeNanAndInfinite) {
  std::vector<float> x(1000, 3e38f);
  ConstTensor tensor{.fp32 = x.data(), .count = 1000};
  EXPECT_NEAR(global_norm({&tensor, 1}), std::sqrt(1000.0) * 3e38f, 1e28);
  x[999] = std::numeric_limits<float>::infinity();
  EXPECT_EQ(global_norm({&tensor, 1}), kInfinity);
  x[3] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(std::isnan(global_norm({&tensor, 1})));
}

TEST(ClipCoefficient, IsTorchs) {
  EXPECT_EQ(clip_coefficient(0.5, 1), 1);
  EXPECT_DOUBLE_EQ(clip_coefficient(4, 1), 1 / (4 + 1e-6));
  EXPECT_EQ(clip_coefficient(kInfinity, 1), 0);
  EXPECT_TRUE(std::isnan(clip_coefficient(std::nan(""), 1)));
}

}  // namespace
}  // namespace trireme::kernels
