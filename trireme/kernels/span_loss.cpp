#include "trireme/kernels/span_loss.h"

#include <immintrin.h>

#include <cmath>
#include <type_traits>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/cpu/isa.h"
#include "trireme/cpu/target_region.h"
#include "trireme/cpu/vector_types.h"
#include "trireme/kernels/rows.h"

namespace trireme::kernels {

namespace {

float as_float(float x) { return x; }
float as_float(bfloat16 x) { return to_float(x); }

template <class T>
T from_float(float x) {
  if constexpr (std::is_same_v<T, float>)
    return x;
  else
    return to_bfloat16(x);
}

struct Softmax {
  float max, sum;  // sum of exp(logit - max)
};

}  // namespace

#define TRIREME_BODY "trireme/kernels/span_loss-inl.h"
#include "trireme/kernels/foreach_isa.h"

namespace {

struct Sequence {
  int64_t begin, length;
};

Sequence sequence(const SpanTargets& targets, int64_t b) {
  return {targets.cu_seqlens[b], targets.cu_seqlens[b + 1] - targets.cu_seqlens[b]};
}

// Returns the longest sequence's length.
int64_t check(const SpanTargets& targets) {
  if (targets.B < 0) throw InvalidArgument(str("span_loss: ", targets.B, " sequences"));
  int64_t longest = 0;
  for (int64_t b = 0; b < targets.B; ++b) {
    int64_t length = sequence(targets, b).length;
    if (length == 0) throw InvalidArgument(str("span_loss: sequence ", b, " is empty"));
    if (length < 0) throw InvalidArgument(str("span_loss: sequence ", b, " ends before it begins; cu_seqlens must ascend"));
    longest = std::max(longest, length);
  }
  return longest;
}

// exponentials[i] = exp(logits[i * stride] - max).
template <class T>
Softmax softmax(const T* logits, int64_t stride, int64_t n, float* exponentials) {
  for (int64_t i = 0; i < n; ++i) exponentials[i] = as_float(logits[i * stride]);
  return TRIREME_AT_LEVEL(exponentiate)(exponentials, n);
}

bool counts(int64_t position, int64_t length) { return position >= 0 && position < length; }

int64_t count(const SpanTargets& targets, const int64_t* positions) {
  int64_t counted = 0;
  for (int64_t b = 0; b < targets.B; ++b) counted += counts(positions[b], sequence(targets, b).length);
  return counted;
}

// body(b, sequence, room for its exponentials) for every sequence.
template <class Body>
void for_sequences(const SpanTargets& targets, int64_t longest, const Body& body) {
  parallel_for(targets.B, kGrainElements / std::max<int64_t>(longest, 1) + 1, [&](int64_t begin, int64_t end) {
    std::vector<float> exponentials(longest);
    for (int64_t b = begin; b < end; ++b) body(b, sequence(targets, b), exponentials.data());
  });
}

template <class T>
double mean_cross_entropy(const T* logits, int64_t stride, const SpanTargets& targets, const int64_t* positions,
                          int64_t longest) {
  std::vector<double> losses(targets.B);
  for_sequences(targets, longest, [&](int64_t b, Sequence s, float* exponentials) {
    if (!counts(positions[b], s.length)) return;
    auto [max, sum] = softmax(logits + s.begin * stride, stride, s.length, exponentials);
    losses[b] = std::log(double{sum}) + (double{max} - as_float(logits[(s.begin + positions[b]) * stride]));
  });
  double total = 0;
  for (double loss : losses) total += loss;
  return total / static_cast<double>(count(targets, positions));
}

template <class T>
void cross_entropy_backward(const T* logits, int64_t stride, const SpanTargets& targets, const int64_t* positions,
                            int64_t longest, float dloss, T* dlogits, int64_t dstride) {
  const float scale = dloss / static_cast<float>(std::max<int64_t>(count(targets, positions), 1));
  for_sequences(targets, longest, [&](int64_t b, Sequence s, float* exponentials) {
    T* to = dlogits + s.begin * dstride;
    if (!counts(positions[b], s.length)) {
      for (int64_t i = 0; i < s.length; ++i) to[i * dstride] = from_float<T>(0);
      return;
    }
    float sum = softmax(logits + s.begin * stride, stride, s.length, exponentials).sum;
    for (int64_t i = 0; i < s.length; ++i)
      to[i * dstride] = from_float<T>((exponentials[i] / sum - (i == positions[b] ? 1.0f : 0.0f)) * scale);
  });
}

}  // namespace

template <class T>
float span_loss_forward(const SpanLogits<T>& logits, const SpanTargets& targets) {
  int64_t longest = check(targets);
  double start = mean_cross_entropy(logits.start, logits.stride, targets, targets.start_positions, longest);
  double end = mean_cross_entropy(logits.end, logits.stride, targets, targets.end_positions, longest);
  return static_cast<float>((start + end) / 2);
}

template <class T>
void span_loss_backward(const SpanLogits<T>& logits, const SpanTargets& targets, float dloss,
                        const SpanLogitsGradient<T>& dlogits) {
  int64_t longest = check(targets);
  cross_entropy_backward(logits.start, logits.stride, targets, targets.start_positions, longest, dloss / 2, dlogits.start,
                         dlogits.stride);
  cross_entropy_backward(logits.end, logits.stride, targets, targets.end_positions, longest, dloss / 2, dlogits.end,
                         dlogits.stride);
}

template float span_loss_forward(const SpanLogits<float>&, const SpanTargets&);
template float span_loss_forward(const SpanLogits<bfloat16>&, const SpanTargets&);
template void span_loss_backward(const SpanLogits<float>&, const SpanTargets&, float, const SpanLogitsGradient<float>&);
template void span_loss_backward(const SpanLogits<bfloat16>&, const SpanTargets&, float,
                                 const SpanLogitsGradient<bfloat16>&);

}  // namespace trireme::kernels
