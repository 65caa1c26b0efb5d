// What the benchmarks of kernels over rows share: shapes, registration per ISA level, bytes per second, and an answer
// checked before it is timed. Bytes are those that must pass between memory and core: each activation read or written once.
#pragma once

#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "trireme/base/float16.h"
#include "trireme/cpu/isa.h"

namespace trireme::kernels {

inline double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

inline double median(std::vector<double> of) {
  std::nth_element(of.begin(), of.begin() + of.size() / 2, of.end());
  return of[of.size() / 2];
}

struct Shape {
  int64_t rows, H;
};

// A batch of MiniLM, of BERT-base and of BERT-large: 12 sequences of 161 tokens, the average of SQuAD.
constexpr Shape kShapes[] = {{1932, 384}, {1932, 768}, {1932, 1024}};

inline std::vector<float> random_floats(int64_t n, uint32_t seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> draw;
  std::vector<float> x(n);
  for (float& each : x) each = draw(generator);
  return x;
}

template <class T>
std::vector<T> random_row_values(int64_t n, uint32_t seed) {
  std::vector<float> x = random_floats(n, seed);
  if constexpr (std::is_same_v<T, float>) {
    return x;
  } else {
    std::vector<T> y(n);
    for (int64_t i = 0; i < n; ++i) y[i] = to_bfloat16(x[i]);
    return y;
  }
}

template <class T>
const char* type_name() {
  return std::is_same_v<T, float> ? "float32" : "bfloat16";
}

// Exact for what nothing was computed on; the tests have the derived tolerances, here a wrong kernel is to be caught.
inline bool agrees(const std::vector<float>& fast, const std::vector<float>& expected, double tolerance = 1e-3) {
  for (size_t i = 0; i < fast.size(); ++i)
    if (!(std::abs(fast[i] - expected[i]) <= tolerance * (1 + std::abs(expected[i])))) return false;
  return true;
}

// Times call(). `right` says whether the answer of a first call was.
inline void measure(benchmark::State& state, int64_t bytes, const std::function<void()>& call,
                    const std::function<bool()>& right) {
  call();
  if (!right()) return state.SkipWithError("the result differs from the reference");
  for (auto _ : state) {
    call();
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * bytes);
}

// run(state) as name/<level> for every ISA level.
inline void register_per_isa(const std::string& name, const std::function<void(benchmark::State&)>& run) {
  for (cpu::Isa level : cpu::isa_levels())
    benchmark::RegisterBenchmark((name + "/" + std::string(cpu::name_of(level))).c_str(), [run,
                                                                                           level](benchmark::State& state) {
      cpu::ScopedIsa scope(level);
      run(state);
    })->UseRealTime();
}

inline std::string shape_name(Shape shape) { return std::to_string(shape.rows) + "x" + std::to_string(shape.H); }

}  // namespace trireme::kernels
