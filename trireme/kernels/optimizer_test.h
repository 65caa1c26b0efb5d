// What the tests of the optimizers share: parameters in every format, twice, for the kernel and for its reference.
#pragma once

#include <omp.h>

#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "trireme/kernels/bf16.h"
#include "trireme/kernels/kernel_test.h"
#include "trireme/kernels/weights.h"

namespace trireme::kernels {

// A parameter with its gradient and up to three arrays of state. All begin one element behind what malloc aligned, and one
// more element follows them, which nobody may touch.
struct TestParameter {
  int64_t count;
  Storage storage;
  bool bf16_gradient;
  std::vector<float> fp32, fp32_gradient;
  std::vector<bfloat16> bf16, bf16_values;
  std::vector<uint16_t> lower;
  std::array<std::vector<float>, 3> state;

  // Weights and gradients that bf16 holds exactly, so that every format begins with the same values. Tests decay weights by
  // a power of 2: where the gradient and what decay adds to it cancel, the sign of a first step would hang on a rounding.
  TestParameter(int64_t count, Storage storage, bool bf16_gradient, uint32_t seed)
      : count(count), storage(storage), bf16_gradient(bf16_gradient), lower(count + 2) {
    bf16 = kernels::to_bfloat16(normal(count + 2, seed, 0.5f));
    fp32 = kernels::to_float(bf16);
    for (auto& each : state) each.assign(count + 2, 0);
    draw_gradient(seed + 1);
  }

  void draw_gradient(uint32_t seed) {
    bf16_values = kernels::to_bfloat16(normal(count + 2, seed, 0.1f));
    fp32_gradient = kernels::to_float(bf16_values);
  }
  void set_gradient(int64_t i, float x) {
    bf16_values[1 + i] = trireme::to_bfloat16(x);
    fp32_gradient[1 + i] = x;
  }

  Weights weights() {
    Weights all{fp32.data() + 1, bf16.data() + 1, lower.data() + 1};
    if (storage == Storage::fp32) return {.fp32 = all.fp32};
    if (storage == Storage::bf16) return {.bf16 = all.bf16};
    if (storage == Storage::master) return {.fp32 = all.fp32, .bf16 = all.bf16};
    return {.bf16 = all.bf16, .lower = all.lower};
  }
  Gradient gradient() const {
    if (bf16_gradient) return {.bf16 = bf16_values.data() + 1};
    return {.fp32 = fp32_gradient.data() + 1};
  }
  float* state_at(int which) { return state[which].data() + 1; }
  float value(int64_t i) { return load_ref(weights(), i); }
};

const std::vector<Storage> kStorages = {Storage::fp32, Storage::bf16, Storage::master, Storage::split};

// One parameter of each size, for one format.
inline std::vector<TestParameter> test_parameters(Storage storage, bool bf16_gradient,
                                                  const std::vector<int64_t>& sizes = {0, 1, 7, 16, 33, 1000, 16385}) {
  std::vector<TestParameter> parameters;
  for (int64_t size : sizes) parameters.emplace_back(size, storage, bf16_gradient, static_cast<uint32_t>(17 + 5 * size));
  return parameters;
}

// Within some roundings of each other: after three steps 8 ulp of fp32, for weights of about 0.5 and steps of about 0.01;
// plain bf16 may round the other way. NaN and infinities must be the same.
inline bool is_close(float fast, float reference, Storage storage) {
  if (std::isnan(reference)) return std::isnan(fast);
  if (std::isinf(reference)) return fast == reference;
  if (storage == Storage::bf16) return std::abs(fast - reference) <= 0x1p-7f * std::abs(reference);
  return std::abs(fast - reference) <= 0x1p-20f * std::max(std::abs(reference), 0.5f);
}

inline testing::AssertionResult are_close(TestParameter& fast, TestParameter& reference) {
  for (int64_t i = -1; i <= fast.count; ++i) {
    float x = fast.value(i), y = reference.value(i);
    if (!is_close(x, y, fast.storage))
      return testing::AssertionFailure() << "weight " << i << " of " << fast.count << ": " << x << " is not " << y;
    for (int s = 0; s < 3; ++s) {
      float a = fast.state_at(s)[i], b = reference.state_at(s)[i];
      if (!is_close(a, b, Storage::fp32))
        return testing::AssertionFailure()
               << "state " << s << ", " << i << " of " << fast.count << ": " << a << " is not " << b;
    }
    if (fast.storage == Storage::master && fast.bf16[1 + i].bits != trireme::to_bfloat16(fast.fp32[1 + i]).bits)
      return testing::AssertionFailure() << "weight " << i << " of " << fast.count << " is not its master, rounded";
  }
  return testing::AssertionSuccess();
}

inline void expect_close(std::vector<TestParameter>& fast, std::vector<TestParameter>& reference, const std::string& what) {
  for (size_t p = 0; p < fast.size(); ++p)
    EXPECT_TRUE(are_close(fast[p], reference[p])) << what << ", storage " << static_cast<int>(fast[p].storage);
}

// step(parameters, number) runs a kernel, step_ref its reference.
template <class Step, class StepRef>
void expect_steps_agree(const std::string& what, const Step& step, const StepRef& step_ref,
                        const std::vector<Storage>& storages = kStorages) {
  for (Storage storage : storages)
    for (bool bf16_gradient : {false, true}) {
      auto fast = test_parameters(storage, bf16_gradient), reference = fast;
      for (int number = 1; number <= 3 && !testing::Test::HasFailure(); ++number) {
        step(fast, number);
        step_ref(reference, number);
        expect_close(fast, reference, what + ", step " + std::to_string(number));
        for (auto* each : {&fast, &reference})
          for (TestParameter& parameter : *each)
            parameter.draw_gradient(static_cast<uint32_t>(number * 100 + parameter.count));
        if (storage == Storage::bf16) reference = fast;  // roundings would grow apart
      }
    }
}

inline std::vector<uint32_t> bits_of(std::vector<TestParameter>& parameters) {
  std::vector<uint32_t> bits;
  for (TestParameter& parameter : parameters)
    for (int64_t i = 0; i < parameter.count; ++i) bits.push_back(std::bit_cast<uint32_t>(parameter.value(i)));
  return bits;
}

// Weights in two halves, or with a master, are fp32 weights: the same bits after some steps, with gradients of either
// format.
template <class Step>
void expect_masters_are_fp32(const Step& step) {
  std::vector<uint32_t> expected;
  for (Storage storage : {Storage::fp32, Storage::master, Storage::split})
    for (bool bf16_gradient : {false, true}) {
      auto parameters = test_parameters(storage, bf16_gradient);
      for (int number = 1; number <= 5; ++number) {
        step(parameters, number);
        for (TestParameter& parameter : parameters) parameter.draw_gradient(number);
      }
      if (expected.empty()) expected = bits_of(parameters);
      EXPECT_EQ(bits_of(parameters), expected) << static_cast<int>(storage);
      for (TestParameter& parameter : parameters)
        for (int64_t i = 0; storage == Storage::split && i < parameter.count; ++i)
          EXPECT_EQ(parameter.bf16[1 + i].bits, std::bit_cast<uint32_t>(parameter.value(i)) >> 16);
    }
}

template <class Step>
void expect_threads_do_not_matter(const Step& step) {
  int before = omp_get_max_threads();
  std::vector<uint32_t> expected;
  for (int threads : {1, 2, 5}) {
    omp_set_num_threads(threads);
    auto parameters = test_parameters(Storage::fp32, false, {3, 5, 100003, 7, 40000});
    for (int number = 1; number <= 2; ++number) step(parameters, number);
    if (expected.empty()) expected = bits_of(parameters);
    EXPECT_EQ(bits_of(parameters), expected) << threads << " threads";
  }
  omp_set_num_threads(before);
}

// An element's gradient that is no number spoils that element alone, as in the reference.
template <class Step, class StepRef>
void expect_nan_and_infinity_agree(const Step& step, const StepRef& step_ref) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (Storage storage : kStorages)
    for (bool bf16_gradient : {false, true}) {
      auto fast = test_parameters(storage, bf16_gradient, {70});
      fast[0].set_gradient(3, std::numeric_limits<float>::quiet_NaN());
      fast[0].set_gradient(30, kInfinity);
      fast[0].set_gradient(66, -kInfinity);
      fast[0].set_gradient(68, 3e38f);  // its square is infinite
      auto reference = fast;
      step(fast, 1);
      step_ref(reference, 1);
      expect_close(fast, reference, "nan and infinity");
    }
}

}  // namespace trireme::kernels
