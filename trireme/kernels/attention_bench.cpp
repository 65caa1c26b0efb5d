// Attention alone, on buffers that are there already, and its share of the FMA peak, which is measured between iterations.
// Model FLOPs: 4 S^2 D forward and 8 S^2 D backward a head; what the backward pass computes again does not count.
#include <benchmark/benchmark.h>

#include <vector>

#include "trireme/kernels/attention.h"
#include "trireme/kernels/fma_peak.h"
#include "trireme/kernels/row_bench.h"

namespace trireme::kernels {
namespace {

enum Passes { kForward, kBackward, kBoth };

// Arguments: sequences, length, heads, head size, passes, dropout in percent.
void BM_attention(benchmark::State& state) {
  const int64_t batch = state.range(0), length = state.range(1), heads = state.range(2), size = state.range(3);
  const int64_t passes = state.range(4);
  const int64_t tokens = batch * length, width = heads * size;
  std::vector<float> qkv(tokens * 3 * width, 0.1f), out(tokens * width), softmax(2 * heads * tokens),
      d_out(out.size(), 0.01f), d_qkv(qkv.size());
  for (size_t i = 0; i < qkv.size(); ++i)
    qkv[i] = static_cast<float>(static_cast<int>(i * 2654435761u >> 16 & 255) - 128) / 128;
  std::vector<int64_t> cu;
  for (int64_t b = 0; b <= batch; ++b) cu.push_back(b * length);
  AttentionShape shape{.cu_seqlens = cu, .heads = heads, .kv_heads = heads, .head_size = size, .scale = 0.125f};
  shape.dropout = make_dropout(static_cast<double>(state.range(5)) / 100, 1);
  auto part = [&](const float* data, int i) { return Heads<const float>{data + i * width, 3 * width, size}; };
  auto part_of = [&](float* data, int i) { return Heads<float>{data + i * width, 3 * width, size}; };
  Heads<float> o{out.data(), width, size};
  Heads<const float> q = part(qkv.data(), 0), k = part(qkv.data(), 1), v = part(qkv.data(), 2), co{out.data(), width, size};
  attention_forward<float>(shape, q, k, v, o, softmax.data());
  std::vector<double> seconds, peaks;
  for (auto _ : state) {
    const double begin = now();
    if (passes != kBackward) attention_forward<float>(shape, q, k, v, o, softmax.data());
    if (passes != kForward)
      attention_backward<float>(shape, q, k, v, co, softmax.data(), {d_out.data(), width, size},
                                {part_of(d_qkv.data(), 0), part_of(d_qkv.data(), 1), part_of(d_qkv.data(), 2)});
    seconds.push_back(now() - begin);
    state.SetIterationTime(seconds.back());
    peaks.push_back(measure_fma_peak(0.005));
  }
  const double flops[] = {4, 8, 12};
  const double gflops = flops[passes] * static_cast<double>(batch * heads * length * length * size) * 1e-9 / median(seconds);
  state.counters["GFLOP/s"] = gflops;
  state.counters["%peak"] = 100 * gflops / median(peaks);
}
BENCHMARK(BM_attention)
    ->ArgNames({"B", "S", "heads", "D", "passes", "drop%"})
    ->ArgsProduct({{12}, {161, 384}, {12}, {32, 64}, {kForward, kBackward, kBoth}, {0, 10}})
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace trireme::kernels
