// The loss of extractive question answering over packed sequences: for each sequence, cross entropy of where the answer
// starts and of where it ends, each a softmax over that sequence's own tokens. Logits are T, float or bfloat16, and may be
// interleaved ([tokens, 2], stride 2).
//
// A position outside of [0, length) is not counted: the answer is not in this window. (So are positions beyond the end in
// HF's models, by ignore_index; a negative one HF moves to 0.) The loss is half the sum of both means, each over the
// sequences that count; NaN where none does, as in torch.
#pragma once

#include <cstdint>

#include "trireme/base/float16.h"

namespace trireme::kernels {

struct SpanTargets {
  const int64_t* cu_seqlens = nullptr;  // [B + 1]: sequence b is tokens cu_seqlens[b] to cu_seqlens[b + 1], at least one
  const int64_t* start_positions = nullptr;  // [B], relative to the sequence
  const int64_t* end_positions = nullptr;    // [B]
  int64_t B = 0;
};

template <class T>
struct SpanLogits {
  const T* start = nullptr;  // of token t: start[t * stride]
  const T* end = nullptr;
  int64_t stride = 1;
};

template <class T>
struct SpanLogitsGradient {
  T* start = nullptr;  // written for every token: 0 where a sequence does not count; may be the logits themselves
  T* end = nullptr;
  int64_t stride = 1;
};

// For T = float and bfloat16. InvalidArgument, before anything is written, for a sequence that is empty. The same bits for
// any number of threads.
template <class T>
float span_loss_forward(const SpanLogits<T>& logits, const SpanTargets& targets);
template <class T>
void span_loss_backward(const SpanLogits<T>& logits, const SpanTargets& targets, float dloss,
                        const SpanLogitsGradient<T>& dlogits);

float span_loss_forward_ref(const SpanLogits<float>& logits, const SpanTargets& targets);
void span_loss_backward_ref(const SpanLogits<float>& logits, const SpanTargets& targets, float dloss,
                            const SpanLogitsGradient<float>& dlogits);

}  // namespace trireme::kernels
