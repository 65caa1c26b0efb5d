// What the tests of the kernels share.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "trireme/base/float16.h"
#include "trireme/cpu/isa.h"

namespace trireme::kernels {

// Runs a test's body once per ISA level that this CPU has.
class EachIsa : public testing::TestWithParam<cpu::Isa> {
 private:
  cpu::ScopedIsa level_{GetParam()};
};

#define TRIREME_EACH_ISA(suite)                                                                            \
  INSTANTIATE_TEST_SUITE_P(, suite, testing::ValuesIn(cpu::isa_levels().begin(), cpu::isa_levels().end()), \
                           [](const auto& level) { return std::string(cpu::name_of(level.param)); })

inline std::vector<float> normal(int64_t n, uint32_t seed, float deviation = 1) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> draw(0, deviation);
  std::vector<float> x(n);
  for (float& each : x) each = draw(generator);
  return x;
}

inline std::vector<bfloat16> to_bfloat16(const std::vector<float>& x) {
  std::vector<bfloat16> y(x.size());
  for (size_t i = 0; i < x.size(); ++i) y[i] = trireme::to_bfloat16(x[i]);
  return y;
}

inline std::vector<float> to_float(const std::vector<bfloat16>& x) {
  std::vector<float> y(x.size());
  for (size_t i = 0; i < x.size(); ++i) y[i] = trireme::to_float(x[i]);
  return y;
}

}  // namespace trireme::kernels
