#include "trireme/kernels/adam.h"

#include "trireme/base/error.h"
#include "trireme/kernels/optimizer_test.h"

namespace trireme::kernels {
namespace {

class AdamTest : public EachIsa {};
TRIREME_EACH_ISA(AdamTest);

AdamOptions adamw_options() { return {.lr = 0.01, .beta1 = 0.8, .beta2 = 0.99, .weight_decay = 0.125, .decoupled = true}; }

auto stepper(void (*kernel)(std::span<const AdamTensor>, const AdamOptions&), AdamOptions options, bool amsgrad = false) {
  return [=](std::vector<TestParameter>& parameters, int number) {
    std::vector<AdamTensor> tensors;
    for (TestParameter& each : parameters)
      tensors.push_back({.weights = each.weights(),
                         .gradient = each.gradient(),
                         .exp_avg = each.state_at(0),
                         .exp_avg_sq = each.state_at(1),
                         .max_exp_avg_sq = amsgrad ? each.state_at(2) : nullptr,
                         .step = static_cast<double>(number),
                         .count = each.count});
    kernel(tensors, options);
  };
}

void expect_agrees(const std::string& what, const AdamOptions& options, bool amsgrad = false) {
  expect_steps_agree(what, stepper(adam, options, amsgrad), stepper(adam_ref, options, amsgrad));
}

TEST_P(AdamTest, AgreesWithReference) {
  AdamOptions options = adamw_options();
  expect_agrees("AdamW", options);
  expect_agrees("AdamW, amsgrad", options, true);
  options.decoupled = false;
  expect_agrees("Adam", options);
  options.weight_decay = 0, options.beta1 = 0, options.eps = 1e-3;
  expect_agrees("Adam without decay", options);
  options.maximize = true, options.gradient_scale = 0.25;
  expect_agrees("Adam, maximize, scaled", options, true);
}

TEST_P(AdamTest, MastersAreFp32) {
  expect_masters_are_fp32(stepper(adam, adamw_options()));
  expect_masters_are_fp32(stepper(adam, {.lr = 0.01, .weight_decay = 0.125}, true));
}

TEST_P(AdamTest, ThreadsDoNotMatter) { expect_threads_do_not_matter(stepper(adam, adamw_options())); }

TEST_P(AdamTest, NanAndInfinity) {
  expect_nan_and_infinity_agree(stepper(adam, adamw_options()), stepper(adam_ref, adamw_options()));
}

// Someone has loaded other weights into the model: they count, not the master.
TEST_P(AdamTest, AChangedParameterReplacesItsMaster) {
  auto parameters = test_parameters(Storage::master, false, {40});
  auto step = stepper(adam, {.lr = 0.01});
  step(parameters, 1);
  parameters[0].bf16[1 + 20] = trireme::to_bfloat16(3);
  float untouched = parameters[0].fp32[1 + 21];
  step(parameters, 2);
  EXPECT_NEAR(parameters[0].fp32[1 + 20], 3, 0.02);
  EXPECT_NEAR(parameters[0].fp32[1 + 21], untouched, 0.02);
}

TEST(Adam, ChecksBeforeItWrites) {
  auto parameters = test_parameters(Storage::fp32, false, {4, 4});
  std::vector<uint32_t> before = bits_of(parameters);
  AdamTensor good{.weights = parameters[0].weights(),
                  .gradient = parameters[0].gradient(),
                  .exp_avg = parameters[0].state_at(0),
                  .exp_avg_sq = parameters[0].state_at(1),
                  .count = 4};
  auto fails = [&](auto&& spoil) {
    AdamTensor bad = good;
    spoil(bad);
    AdamTensor both[] = {good, bad};
    EXPECT_THROW(adam(both, {}), InvalidArgument);
    EXPECT_EQ(bits_of(parameters), before);
  };
  fails([](AdamTensor& tensor) { tensor.weights = {}; });
  fails([](AdamTensor& tensor) { tensor.gradient = {}; });
  fails([](AdamTensor& tensor) { tensor.exp_avg = nullptr; });
  fails([](AdamTensor& tensor) { tensor.step = 0; });
  uint16_t lower[4] = {};
  fails([&](AdamTensor& tensor) { tensor.weights.lower = lower; });
  adam({}, {});
}

}  // namespace
}  // namespace trireme::kernels
