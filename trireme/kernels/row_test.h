// What the tests of kernels over rows share.
#pragma once

#include <gmock/gmock.h>
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>
#include <vector>

#include "trireme/kernels/kernel_test.h"

namespace trireme::kernels {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

inline float value_of(float x) { return x; }
inline float value_of(bfloat16 x) { return trireme::to_float(x); }
template <class T>
T rounded(float x) {
  if constexpr (std::is_same_v<T, float>)
    return x;
  else
    return trireme::to_bfloat16(x);
}

// What rounding to T adds to an error, relative to the value: half of the last place, 2^-8 for bf16's 8 digits.
template <class T>
constexpr double kRounding = std::is_same_v<T, float> ? 0 : 1.0 / 256;

constexpr double kUnit = 1.0 / (1 << 24);  // rounding one fp32 operation, relative

// A sum of n floats in at least 4 strands (vectors of 4 lanes), relative to the sum of their magnitudes: each strand makes n
// / 4 roundings, joining them a few more.
inline double sum_error(int64_t n) { return (static_cast<double>(n) / 4 + 6) * kUnit; }

// Elements at an odd address between sentinels, which must still be there at the end.
template <class T>
class Guarded {
 public:
  explicit Guarded(int64_t n, float value = 0) : memory_(n + 2 * kMargin, rounded<T>(kSentinel)) {
    std::fill(data(), data() + n, rounded<T>(value));
  }
  explicit Guarded(const std::vector<float>& values) : Guarded(static_cast<int64_t>(values.size())) {
    for (size_t i = 0; i < values.size(); ++i) data()[i] = rounded<T>(values[i]);
  }
  ~Guarded() {
    for (int i = 0; i < kMargin; ++i) {
      EXPECT_EQ(value_of(memory_[i]), kSentinel) << "written " << kMargin - i << " elements before the buffer";
      EXPECT_EQ(value_of(memory_[memory_.size() - 1 - i]), kSentinel)
          << "written " << kMargin - i << " elements past the buffer";
    }
  }
  T* data() { return memory_.data() + kMargin; }
  int64_t size() const { return static_cast<int64_t>(memory_.size()) - 2 * kMargin; }
  std::vector<float> values() {
    std::vector<float> values(size());
    for (int64_t i = 0; i < size(); ++i) values[i] = value_of(data()[i]);
    return values;
  }

 private:
  static constexpr int kMargin = 17;  // more than the lanes of a vector, and odd
  static constexpr float kSentinel = 123 * 256.0f;  // exact in bf16
  std::vector<T> memory_;
};

// |fast - expected| <= absolute + relative * |expected|, and NaN where NaN is expected.
inline void expect_close(const std::vector<float>& fast, const std::vector<float>& expected, double absolute,
                         double relative, const std::string& what) {
  ASSERT_EQ(fast.size(), expected.size()) << what;
  for (size_t i = 0; i < fast.size(); ++i) {
    double tolerance = absolute + relative * std::abs(expected[i]);
    bool close = std::isnan(expected[i]) ? std::isnan(fast[i]) : std::abs(double{fast[i]} - expected[i]) <= tolerance;
    ASSERT_TRUE(close) << what << "[" << i << "]: " << fast[i] << ", expected " << expected[i] << " within " << tolerance;
  }
}

inline double max_abs(const std::vector<float>& x) {
  double most = 0;
  for (float each : x) most = std::max(most, std::abs(double{each}));
  return most;
}

// The code in scope runs with this many OpenMP threads.
class ScopedThreads {
 public:
  explicit ScopedThreads(int threads) : previous_(omp_get_max_threads()) { omp_set_num_threads(threads); }
  ~ScopedThreads() { omp_set_num_threads(previous_); }
  ScopedThreads(const ScopedThreads&) = delete;

 private:
  int previous_;
};

// compute() returns all outputs as floats; they must not depend on the number of threads. NaN is not expected.
template <class Compute>
void expect_same_for_any_threads(const Compute& compute) {
  std::vector<float> alone;
  {
    ScopedThreads one(1);
    alone = compute();
  }
  for (int threads : {2, 5}) {
    ScopedThreads several(threads);
    EXPECT_TRUE(compute() == alone) << threads << " threads";
  }
}

// The derivative of loss() by each of the n floats at x, by central differences, against `gradient`.
template <class Loss>
void expect_derivative(const Loss& loss, float* x, int64_t n, const std::vector<float>& gradient, double step,
                       double tolerance) {
  for (int64_t i = 0; i < n; ++i) {
    float saved = x[i];
    x[i] = saved + static_cast<float>(step);
    double up = loss(), high = x[i];
    x[i] = saved - static_cast<float>(step);
    double down = loss(), low = x[i];
    x[i] = saved;
    ASSERT_NEAR((up - down) / (high - low), gradient[i], tolerance) << "derivative " << i;
  }
}

inline double dot(const std::vector<float>& a, const std::vector<float>& b) {
  double total = 0;
  for (size_t i = 0; i < a.size(); ++i) total += double{a[i]} * b[i];
  return total;
}

inline std::vector<float> joined(std::initializer_list<std::vector<float>> parts) {
  std::vector<float> all;
  for (const auto& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

}  // namespace trireme::kernels
