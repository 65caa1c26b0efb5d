// The span loss by its formula, in double.
#include <algorithm>
#include <cmath>

#include "trireme/kernels/span_loss.h"

namespace trireme::kernels {

namespace {

struct Head {
  const float* logits;
  int64_t stride;
  const SpanTargets& targets;
  const int64_t* positions;

  int64_t length(int64_t b) const { return targets.cu_seqlens[b + 1] - targets.cu_seqlens[b]; }
  bool counts(int64_t b) const { return positions[b] >= 0 && positions[b] < length(b); }
  double logit(int64_t b, int64_t i) const { return logits[(targets.cu_seqlens[b] + i) * stride]; }
  double log_softmax(int64_t b, int64_t i) const {
    double most = logit(b, 0), sum = 0;
    for (int64_t j = 0; j < length(b); ++j) most = std::max(most, logit(b, j));
    for (int64_t j = 0; j < length(b); ++j) sum += std::exp(logit(b, j) - most);
    return logit(b, i) - most - std::log(sum);
  }
  double counted() const {
    double n = 0;
    for (int64_t b = 0; b < targets.B; ++b) n += counts(b);
    return n;
  }
  double loss() const {
    double sum = 0;
    for (int64_t b = 0; b < targets.B; ++b)
      if (counts(b)) sum -= log_softmax(b, positions[b]);
    return sum / counted();
  }
  void backward(double dloss, float* dlogits, int64_t dstride) const {
    for (int64_t b = 0; b < targets.B; ++b)
      for (int64_t i = 0; i < length(b); ++i) {
        double gradient = counts(b) ? (std::exp(log_softmax(b, i)) - (i == positions[b])) * dloss / counted() : 0;
        dlogits[(targets.cu_seqlens[b] + i) * dstride] = gradient;
      }
  }
};

}  // namespace

float span_loss_forward_ref(const SpanLogits<float>& logits, const SpanTargets& targets) {
  Head start{logits.start, logits.stride, targets, targets.start_positions};
  Head end{logits.end, logits.stride, targets, targets.end_positions};
  return (start.loss() + end.loss()) / 2;
}

void span_loss_backward_ref(const SpanLogits<float>& logits, const SpanTargets& targets, float dloss,
                            const SpanLogitsGradient<float>& dlogits) {
  Head{logits.start, logits.stride, targets, targets.start_positions}.backward(dloss / 2, dlogits.start, dlogits.stride);
  Head{logits.end, logits.stride, targets, targets.end_positions}.backward(dloss / 2, dlogits.end, dlogits.stride);
}

}  // namespace trireme::kernels
