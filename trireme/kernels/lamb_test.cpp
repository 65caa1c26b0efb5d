#include "trireme/kernels/lamb.h"

#include "trireme/base/error.h"
#include "trireme/kernels/optimizer_test.h"

namespace trireme::kernels {
namespace {

class LambTest : public EachIsa {};
TRIREME_EACH_ISA(LambTest);

auto stepper(void (*kernel)(std::span<const LambTensor>, const LambOptions&), LambOptions options) {
  return [=](std::vector<TestParameter>& parameters, int number) {
    std::vector<LambTensor> tensors;
    for (TestParameter& each : parameters)
      tensors.push_back({.weights = each.weights(),
                         .gradient = each.gradient(),
                         .exp_avg = each.state_at(0),
                         .exp_avg_sq = each.state_at(1),
                         .step = static_cast<double>(number),
                         .count = each.count});
    kernel(tensors, options);
  };
}

const LambOptions kOptions = {.lr = 0.01, .weight_decay = 0.125};

TEST_P(LambTest, AgreesWithReference) {
  for (const LambOptions& options :
       {kOptions,
        LambOptions{.lr = 0.02, .beta1 = 0.5, .eps = 0, .weight_decay = 0, .maximize = true, .gradient_scale = 0.1}})
    expect_steps_agree("LAMB", stepper(lamb, options), stepper(lamb_ref, options));
}

TEST_P(LambTest, MastersAreFp32) { expect_masters_are_fp32(stepper(lamb, kOptions)); }
TEST_P(LambTest, ThreadsDoNotMatter) { expect_threads_do_not_matter(stepper(lamb, kOptions)); }
TEST_P(LambTest, NanAndInfinity) { expect_nan_and_infinity_agree(stepper(lamb, kOptions), stepper(lamb_ref, kOptions)); }

// Weights that are all 0 have no norm to scale by: the ratio is 1, and they leave 0.
TEST_P(LambTest, ZeroWeightsMove) {
  auto parameters = test_parameters(Storage::fp32, false, {19});
  parameters[0].fp32.assign(21, 0);
  stepper(lamb, kOptions)(parameters, 1);
  for (int i = 0; i < 19; ++i) EXPECT_NEAR(std::abs(parameters[0].value(i)), kOptions.lr, 1e-4);
}

TEST(Lamb, WantsItsState) {
  auto parameters = test_parameters(Storage::fp32, false, {4});
  LambTensor tensor{.weights = parameters[0].weights(), .gradient = parameters[0].gradient(), .count = 4};
  EXPECT_THROW(lamb({&tensor, 1}, {}), InvalidArgument);
}

}  // namespace
}  // namespace trireme::kernels
