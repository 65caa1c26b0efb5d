#include "trireme/kernels/attention.h"

#include <immintrin.h>

#include <algorithm>
#include <atomic>
#include <numeric>
#include <utility>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/cpu/isa.h"
#include "trireme/cpu/target_region.h"
#include "trireme/cpu/vector_types.h"
#include "trireme/kernels/parallel.h"
#include "trireme/kernels/workspace.h"

namespace trireme::kernels {

// A key head of a sequence: what a thread takes at a time, with the query heads that share it.
struct KeyHead {
  int64_t sequence, head;
};

#define TRIREME_BODY "trireme/kernels/attention-inl.h"
#include "trireme/kernels/foreach_isa.h"

namespace {

// Returns the longest sequence.
int64_t check(const AttentionShape& shape) {
  if (shape.cu_seqlens.empty() || shape.cu_seqlens.front() != 0)
    throw InvalidArgument("attention: cu_seqlens must begin with 0 and have one more element than there are sequences");
  if (shape.heads <= 0 || shape.kv_heads <= 0 || shape.heads % shape.kv_heads != 0)
    throw InvalidArgument(str("attention: ", shape.heads, " heads cannot share ", shape.kv_heads, " key heads"));
  if (shape.head_size <= 0) throw InvalidArgument(str("attention: the head size is ", shape.head_size));
  int64_t longest = 0;
  for (int64_t b = 0; b < shape.sequences(); ++b) {
    int64_t length = shape.cu_seqlens[b + 1] - shape.cu_seqlens[b];
    if (length <= 0)
      throw InvalidArgument(str("attention: sequence ", b, length == 0 ? " is empty" : " ends before it begins"));
    longest = std::max(longest, length);
  }
  return longest;
}

// How a call is cut into turns. In a turn a thread takes some key heads of a sequence one after the other, whose rows lie in the same pages; as
// many as leave every thread eight turns.
struct Turns {
  std::vector<int64_t> order;  // of the sequences, the longest first so that no thread begins one when the others are done
  int64_t heads, count;        // key heads of a turn, turns of the call

  // Neighbouring turns are of different sequences: of the same one, two threads would write side by side, which costs a fortieth of the time
  // where their cores have no cache in common.
  KeyHead first(int64_t turn) const {
    const int64_t sequences = static_cast<int64_t>(order.size());
    return {order[turn % sequences], turn / sequences * heads};
  }
};

Turns turns_of(const AttentionShape& shape) {
  std::vector<int64_t> order(shape.sequences());
  std::iota(order.begin(), order.end(), 0);
  auto length = [&](int64_t b) { return shape.cu_seqlens[b + 1] - shape.cu_seqlens[b]; };
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return length(a) > length(b); });
  const int64_t most = std::max<int64_t>(shape.sequences() * shape.kv_heads / (8 * omp_get_max_threads()), 1);
  const int64_t parts = (shape.kv_heads + most - 1) / most;
  return {std::move(order), (shape.kv_heads + parts - 1) / parts, shape.sequences() * parts};
}

// task(now, next, workspace). `next` is what the thread takes after this one if the threads go on in turn, a guess for fetching ahead.
template <class Task>
void for_each_head(const AttentionShape& shape, int64_t workspace_floats, const Task& task) {
  const Turns turns = turns_of(shape);
  const int64_t threads = omp_get_max_threads();
  std::atomic<bool> out_of_memory = false;
  parallel_tasks(turns.count, [&](int64_t i) {
    float* workspace = thread_workspace(workspace_floats);
    if (!workspace) {
      out_of_memory = true;
      return;
    }
    KeyHead now = turns.first(i);
    for (const int64_t end = std::min(now.head + turns.heads, shape.kv_heads); now.head + 1 < end; ++now.head)
      task(now, KeyHead{now.sequence, now.head + 1}, workspace);
    task(now, turns.first(i + threads < turns.count ? i + threads : i), workspace);
  });
  if (out_of_memory) throw std::bad_alloc();
}

// The kernels add biases always: where there are none, zeros.
AttentionShape with_biases(AttentionShape shape, const float* zeros) {
  for (const float** bias : {&shape.q_bias, &shape.k_bias, &shape.v_bias})
    if (!*bias) *bias = zeros;
  return shape;
}

// to[i] = the sum over the sequences b of from[b, first + i], in order.
void sum_over_sequences(const std::vector<float>& from, int64_t width, int64_t first, int64_t count, float* to) {
  if (!to) return;
  std::fill(to, to + count, 0.0f);
  for (size_t row = 0; row < from.size(); row += width)
    for (int64_t i = 0; i < count; ++i) to[i] += from[row + first + i];
}

}  // namespace

template <class T>
void attention_forward(const AttentionShape& shape, Heads<const T> q, Heads<const T> k, Heads<const T> v, Heads<T> out,
                       float* softmax) {
  int64_t longest = check(shape);
  const std::vector<float> zeros(shape.heads * shape.head_size);
  const AttentionShape biased = with_biases(shape, zeros.data());
  auto attend = TRIREME_AT_LEVEL(attend<T>);
  const int64_t floats = TRIREME_AT_LEVEL(attention_workspace)(longest, shape.head_size, false);
  for_each_head(shape, floats, [&](KeyHead now, KeyHead next, float* workspace) {
    attend(biased, now, next, q, k, v, out, softmax, workspace);
  });
}

template <class T>
void attention_backward(const AttentionShape& shape, Heads<const T> q, Heads<const T> k, Heads<const T> v,
                        Heads<const T> out, const float* softmax, Heads<const T> out_gradient,
                        AttentionGradients<T> gradients) {
  int64_t longest = check(shape);
  const std::vector<float> zeros(shape.heads * shape.head_size);
  const AttentionShape biased = with_biases(shape, zeros.data());
  const int64_t q_width = shape.heads * shape.head_size, kv_width = shape.kv_heads * shape.head_size;
  const int64_t width = q_width + 2 * kv_width;
  std::vector<float> bias_sums(shape.sequences() * width);
  auto attend = TRIREME_AT_LEVEL(attend_backward<T>);
  const int64_t floats = TRIREME_AT_LEVEL(attention_workspace)(longest, shape.head_size, true);
  for_each_head(shape, floats, [&](KeyHead now, KeyHead next, float* workspace) {
    attend(biased, now, next, q, k, v, out, softmax, out_gradient, gradients, &bias_sums[now.sequence * width], workspace);
  });
  sum_over_sequences(bias_sums, width, 0, q_width, gradients.q_bias);
  sum_over_sequences(bias_sums, width, q_width, kv_width, gradients.k_bias);
  sum_over_sequences(bias_sums, width, q_width + kv_width, kv_width, gradients.v_bias);
}

#define TRIREME_INSTANTIATE(T)                                                                                              \
  template void attention_forward(const AttentionShape&, Heads<const T>, Heads<const T>, Heads<const T>, Heads<T>, float*); \
  template void attention_backward(const AttentionShape&, Heads<const T>, Heads<const T>, Heads<const T>, Heads<const T>,   \
                                   const float*, Heads<const T>, AttentionGradients<T>)
TRIREME_INSTANTIATE(float);
TRIREME_INSTANTIATE(bfloat16);

}  // namespace trireme::kernels
