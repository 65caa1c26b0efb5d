#include "trireme/kernels/sgd.h"

#include "trireme/base/error.h"
#include "trireme/kernels/optimizer_test.h"

namespace trireme::kernels {
namespace {

class SgdTest : public EachIsa {};
TRIREME_EACH_ISA(SgdTest);

auto stepper(void (*kernel)(std::span<const SgdTensor>, const SgdOptions&), SgdOptions options) {
  return [=](std::vector<TestParameter>& parameters, int number) {
    std::vector<SgdTensor> tensors;
    for (TestParameter& each : parameters)
      tensors.push_back({.weights = each.weights(),
                         .gradient = each.gradient(),
                         .momentum_buffer = options.momentum != 0 ? each.state_at(0) : nullptr,
                         .first = number == 1,
                         .count = each.count});
    kernel(tensors, options);
  };
}

const SgdOptions kMomentum = {.lr = 0.1, .momentum = 0.9, .dampening = 0.3, .weight_decay = 0.01};

TEST_P(SgdTest, AgreesWithReference) {
  SgdOptions nesterov = {.lr = 0.1, .momentum = 0.9, .nesterov = true, .maximize = true, .gradient_scale = 0.5};
  for (const SgdOptions& options : {SgdOptions{.lr = 0.1}, SgdOptions{.lr = 0.1, .weight_decay = 0.125}, kMomentum, nesterov})
    expect_steps_agree("SGD", stepper(sgd, options), stepper(sgd_ref, options));
}

TEST_P(SgdTest, MastersAreFp32) { expect_masters_are_fp32(stepper(sgd, kMomentum)); }
TEST_P(SgdTest, ThreadsDoNotMatter) { expect_threads_do_not_matter(stepper(sgd, kMomentum)); }

TEST_P(SgdTest, NanAndInfinity) {
  expect_nan_and_infinity_agree(stepper(sgd, kMomentum), stepper(sgd_ref, kMomentum));
  expect_nan_and_infinity_agree(stepper(sgd, {}), stepper(sgd_ref, {}));
}

TEST(Sgd, WantsAMomentumBuffer) {
  auto parameters = test_parameters(Storage::fp32, false, {4});
  SgdTensor tensor{.weights = parameters[0].weights(), .gradient = parameters[0].gradient(), .count = 4};
  EXPECT_THROW(sgd({&tensor, 1}, kMomentum), InvalidArgument);
}

}  // namespace
}  // namespace trireme::kernels
