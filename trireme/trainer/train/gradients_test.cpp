#include "trireme/trainer/train/gradients.h"

#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

namespace trireme::trainer {
namespace {

// The gradient of a sum times a factor is the factor.
void backward(const at::Tensor& value, double factor) { torch::autograd::backward({(value * factor).sum()}, {}); }

// 256 and 255 ones: in bfloat16, 256 + 1 is 256 again.
TEST(Gradients, SmallOnesOfManyMicroBatchesAreNotLostInBf16) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    std::vector<Parameter> parameters{{"used", at::ones({3}, type).set_requires_grad(true), true},
                                      {"unused", at::ones({2}, type).set_requires_grad(true), true}};
    constexpr int64_t kMicroBatches = 256;
    Gradients gradients(parameters, World(), kMicroBatches);
    for (int step = 0; step < 2; ++step) {
      for (int64_t m = 0; m < kMicroBatches; ++m) {
        gradients.begin(m == 0, m == kMicroBatches - 1);
        backward(parameters[0].value, m == 0 ? 256 : 1);
      }
      gradients.finish();
      // 511 lies between the neighbours 510 and 512.
      EXPECT_TRUE(gradients.values()[0].equal(at::full({3}, type == at::kFloat ? 511 : 512, type))) << gradients.values()[0];
      EXPECT_EQ(gradients.values()[0].scalar_type(), type) << "the type that travels and that the optimizer takes";
      EXPECT_EQ(gradients.values()[1].count_nonzero().item<int64_t>(), 0);
    }
  }
}

}  // namespace
}  // namespace trireme::trainer
