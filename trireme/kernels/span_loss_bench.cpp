// Speed of the span loss by ISA level: 12 sequences of 161 tokens, interleaved logits.
#include "trireme/kernels/row_bench.h"
#include "trireme/kernels/span_loss.h"

namespace trireme::kernels {
namespace {

constexpr int64_t kSequences = 12, kLength = 161, kTokens = kSequences * kLength;

struct Buffers {
  std::vector<float> logits = random_floats(2 * kTokens, 1), dlogits = std::vector<float>(2 * kTokens);
  std::vector<int64_t> cu_seqlens = {0}, starts, ends;

  Buffers() {
    for (int64_t b = 0; b < kSequences; ++b) {
      cu_seqlens.push_back((b + 1) * kLength);
      starts.push_back(10 * b);
      ends.push_back(10 * b + 3);
    }
  }
  SpanLogits<float> input() { return {logits.data(), logits.data() + 1, 2}; }
  SpanLogitsGradient<float> output() { return {dlogits.data(), dlogits.data() + 1, 2}; }
  SpanTargets targets() { return {cu_seqlens.data(), starts.data(), ends.data(), kSequences}; }
};

const bool registered = [] {
  const int64_t array_bytes = 2 * kTokens * static_cast<int64_t>(sizeof(float));
  register_per_isa("span_loss/forward/float32", [=](benchmark::State& state) {
    Buffers buffers;
    float loss = 0;
    measure(
        state, array_bytes, [&] { benchmark::DoNotOptimize(loss = span_loss_forward(buffers.input(), buffers.targets())); },
        [&] { return agrees({loss}, {span_loss_forward_ref(buffers.input(), buffers.targets())}); });
  });
  register_per_isa("span_loss/backward/float32", [=](benchmark::State& state) {
    Buffers buffers, expected;
    span_loss_backward_ref(expected.input(), expected.targets(), 1, expected.output());
    measure(
        state, 2 * array_bytes, [&] { span_loss_backward(buffers.input(), buffers.targets(), 1, buffers.output()); },
        [&] { return agrees(buffers.dlogits, expected.dlogits, 1e-6); });
  });
  return true;
}();

}  // namespace
}  // namespace trireme::kernels
