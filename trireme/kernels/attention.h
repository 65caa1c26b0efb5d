// Attention over packed sequences: softmax(scale q k^T + bias, masked) v, forward and backward, with dropout on the
// probabilities.
//
// The tokens of all sequences lie end to end; sequence b is tokens cu_seqlens[b] to cu_seqlens[b + 1]. No S x S matrix is
// ever in memory: a block of query rows meets all keys of its sequence in a buffer that fits the cache, forward, and again
// backward from two saved numbers of each row. One task is a sequence and a key head; a task owns what it writes, so the
// bits do not depend on the number of threads.
#pragma once

#include <cstdint>
#include <span>
#include <type_traits>

#include "trireme/base/float16.h"
#include "trireme/kernels/dropout.h"

namespace trireme::kernels {

// Element (token t, head h, i) lies at data[t * token_stride + h * head_stride + i]: q, k and v may be parts of one matrix.
template <class T>
struct Heads {
  T* data = nullptr;
  int64_t token_stride = 0;
  int64_t head_stride = 0;

  T* at(int64_t token, int64_t head) const { return data + token * token_stride + head * head_stride; }
  operator Heads<const T>() const
    requires(!std::is_const_v<T>)
  {
    return {data, token_stride, head_stride};
  }
};

// Added to the scores: element (sequence b, head h, query i, key j), i and j counted within the sequence, lies at
// data[b * sequence_stride + h * head_stride + i * query_stride + j]. A stride of 0 shares it.
struct AttentionBias {
  const float* data = nullptr;
  int64_t sequence_stride = 0;
  int64_t head_stride = 0;
  int64_t query_stride = 0;
};

struct AttentionShape {
  std::span<const int64_t> cu_seqlens;
  int64_t heads = 0;
  int64_t kv_heads = 0;  // a divisor of heads: heads / kv_heads neighbours share a key head
  int64_t head_size = 0;
  float scale = 1;
  bool causal = false;  // query i sees keys 0 to i
  // Of the projections that made q, k and v, [heads, head_size] and [kv_heads, head_size]; added on reading, which spares a
  // pass over all three. Null: none.
  const float* q_bias = nullptr;
  const float* k_bias = nullptr;
  const float* v_bias = nullptr;
  AttentionBias bias = {};
  Dropout dropout = {};  // of element (stream: head, row: token, column: key within the sequence)

  int64_t sequences() const { return static_cast<int64_t>(cu_seqlens.size()) - 1; }
  int64_t tokens() const { return cu_seqlens.back(); }
};

// T is float or bfloat16; the arithmetic is float. A query whose scores are all minus infinity sees no key, and its result is 0.
// `softmax` has [2, heads, tokens] elements for the backward pass: the largest score m of each row, then the logarithm of the
// sum of exp(score - m); infinity and 0 where no key is seen. An empty sequence or a shape that does not fit is an
// InvalidArgument, before anything is written; no sequences at all are fine.
template <class T>
void attention_forward(const AttentionShape& shape, Heads<const T> q, Heads<const T> k, Heads<const T> v, Heads<T> out,
                       float* softmax);

// The gradients of the projections' biases are written where the pointers are not null.
template <class T>
struct AttentionGradients {
  Heads<T> q, k, v;
  float* q_bias = nullptr;
  float* k_bias = nullptr;
  float* v_bias = nullptr;
};

// Gradients from that of the output; there is none for what is added to the scores.
template <class T>
void attention_backward(const AttentionShape& shape, Heads<const T> q, Heads<const T> k, Heads<const T> v,
                        Heads<const T> out, const float* softmax, Heads<const T> out_gradient,
                        AttentionGradients<T> gradients);

// The same in double, one row at a time.
void attention_forward_ref(const AttentionShape& shape, Heads<const float> q, Heads<const float> k, Heads<const float> v,
                           Heads<float> out, float* softmax);
void attention_backward_ref(const AttentionShape& shape, Heads<const float> q, Heads<const float> k, Heads<const float> v,
                            Heads<const float> out_gradient, AttentionGradients<float> gradients);

}  // namespace trireme::kernels
