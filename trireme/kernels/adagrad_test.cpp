#include "trireme/kernels/adagrad.h"

#include "trireme/base/error.h"
#include "trireme/kernels/optimizer_test.h"

namespace trireme::kernels {
namespace {

class AdagradTest : public EachIsa {};
TRIREME_EACH_ISA(AdagradTest);

auto stepper(void (*kernel)(std::span<const AdagradTensor>, const AdagradOptions&), AdagradOptions options) {
  return [=](std::vector<TestParameter>& parameters, int number) {
    std::vector<AdagradTensor> tensors;
    for (TestParameter& each : parameters)
      tensors.push_back({.weights = each.weights(),
                         .gradient = each.gradient(),
                         .sum = each.state_at(0),
                         .step = static_cast<double>(number),
                         .count = each.count});
    kernel(tensors, options);
  };
}

const AdagradOptions kOptions = {.lr = 0.01, .lr_decay = 0.1, .weight_decay = 0.125};

TEST_P(AdagradTest, AgreesWithReference) {
  for (const AdagradOptions& options : {kOptions, AdagradOptions{.eps = 1e-3, .maximize = true, .gradient_scale = 3}})
    expect_steps_agree("Adagrad", stepper(adagrad, options), stepper(adagrad_ref, options));
}

TEST_P(AdagradTest, MastersAreFp32) { expect_masters_are_fp32(stepper(adagrad, kOptions)); }
TEST_P(AdagradTest, ThreadsDoNotMatter) { expect_threads_do_not_matter(stepper(adagrad, kOptions)); }
TEST_P(AdagradTest, NanAndInfinity) {
  expect_nan_and_infinity_agree(stepper(adagrad, kOptions), stepper(adagrad_ref, kOptions));
}

TEST(Adagrad, WantsASum) {
  auto parameters = test_parameters(Storage::fp32, false, {4});
  AdagradTensor tensor{.weights = parameters[0].weights(), .gradient = parameters[0].gradient(), .count = 4};
  EXPECT_THROW(adagrad({&tensor, 1}, {}), InvalidArgument);
}

}  // namespace
}  // namespace trireme::kernels
