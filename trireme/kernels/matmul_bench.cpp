// The products of a feed-forward layer, forward and for its gradients, and their share of the FMA peak, which is measured
// between iterations.
#include "trireme/kernels/matmul.h"

#include <benchmark/benchmark.h>

#include <algorithm>
#include <vector>

#include "trireme/kernels/fma_peak.h"
#include "trireme/kernels/row_bench.h"

namespace trireme::kernels {
namespace {

enum Form { kForward, kInputGradient, kWeightGradient };

// x [tokens, inputs], W [outputs, inputs], y [tokens, outputs].
Matmul product(Form form, const float* a, const float* b, float* c, int64_t tokens, int64_t inputs, int64_t outputs) {
  if (form == kForward) return {{a, inputs, 1}, {b, 1, inputs}, c, outputs, tokens, outputs, inputs};         // y = x W^T
  if (form == kInputGradient) return {{a, outputs, 1}, {b, inputs, 1}, c, inputs, tokens, inputs, outputs};   // dx = dy W
  return {{a, 1, outputs}, {b, inputs, 1}, c, inputs, outputs, inputs, tokens};                              // dW = dy^T x
}

// Arguments: tokens, inputs, outputs, form.
void BM_matmul(benchmark::State& state) {
  const int64_t tokens = state.range(0), inputs = state.range(1), outputs = state.range(2);
  const int64_t most = std::max({tokens * inputs, tokens * outputs, inputs * outputs});
  const std::vector<float> a = random_floats(most, 1), b = random_floats(most, 2);
  std::vector<float> c(most);
  const Matmul call = product(static_cast<Form>(state.range(3)), a.data(), b.data(), c.data(), tokens, inputs, outputs);
  matmul(call);
  Matmul first_rows = call;
  first_rows.M = std::min<int64_t>(call.M, 7);
  std::vector<float> expected(static_cast<size_t>(first_rows.M * call.c_row));
  first_rows.c = expected.data();
  matmul_ref(first_rows);
  if (!agrees({c.begin(), c.begin() + static_cast<int64_t>(expected.size())}, expected))
    return state.SkipWithError("the result differs from the reference");
  std::vector<double> seconds, peaks;
  for (auto _ : state) {
    const double begin = now();
    matmul(call);
    seconds.push_back(now() - begin);
    state.SetIterationTime(seconds.back());
    peaks.push_back(measure_fma_peak(0.005));
  }
  const double gflops = 2e-9 * static_cast<double>(tokens * inputs * outputs) / median(seconds);
  state.counters["GFLOP/s"] = gflops;
  state.counters["%peak"] = 100 * gflops / median(peaks);
}
BENCHMARK(BM_matmul)
    ->ArgNames({"tokens", "inputs", "outputs", "form"})
    ->ArgsProduct({{1932}, {384}, {384, 1536}, {kForward, kInputGradient, kWeightGradient}})
    ->ArgsProduct({{1932}, {1536}, {384}, {kForward, kInputGradient, kWeightGradient}})
    ->ArgsProduct({{1932}, {768}, {768, 3072}, {kForward, kInputGradient, kWeightGradient}})
    ->ArgsProduct({{1932}, {3072}, {768}, {kForward, kInputGradient, kWeightGradient}})
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace trireme::kernels
