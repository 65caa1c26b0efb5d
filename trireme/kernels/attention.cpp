#include "trireme/kernels/attention.h"

#include <immintrin.h>

#include <algorithm>
#include <atomic>
#include <numeric>
#include <type_traits>
#include <utility>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/cpu/isa.h"
#include "trireme/cpu/target_region.h"
#include "trireme/cpu/vector_types.h"
#include "trireme/kernels/parallel.h"
#include "trireme/kernels/workspace.h"

namespace trireme::kernels {

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

// Some key heads of a sequence, which a thread takes one after the other.
struct Turn {
  int64_t sequence, begin, end;  // and its tokens
  int64_t first, last;           // key heads
};

// How a call is cut into turns: each with as many heads as leave every thread eight of them, and as fit, staged, into kStageBytes.
struct Plan {
  int64_t turns, heads;  // of a sequence; key heads of a turn
  int64_t stage_floats;  // 0: nothing is staged
};

// Half of a second-level cache of 2 MiB.
constexpr int64_t kStageBytes = 1 << 20;

template <class T>
Plan plan_of(const AttentionShape& shape, int64_t longest, int64_t q_matrices, int64_t kv_matrices, bool apart) {
  if (shape.sequences() == 0) return {0, 0, 0};
  const int64_t rows = q_matrices * (shape.heads / shape.kv_heads) + kv_matrices;
  const int64_t head_bytes = rows * longest * shape.head_size * static_cast<int64_t>(sizeof(T));
  const int64_t wanted = std::min(shape.sequences() * shape.kv_heads / (8 * omp_get_max_threads()), kStageBytes / head_bytes);
  const int64_t turns = (shape.kv_heads + std::max<int64_t>(wanted, 1) - 1) / std::max<int64_t>(wanted, 1);
  const int64_t heads = (shape.kv_heads + turns - 1) / turns;
  return {turns, heads, apart && heads > 1 ? heads * head_bytes / static_cast<int64_t>(sizeof(float)) + 1 : 0};
}

// The rows of a turn's heads, copied side by side. In the matrices of a model a head's rows lie a token's width apart, each in another page:
// with eight matrices more pages than a processor has translations for. A token's heads are copied together, which visits its page once for
// all of them.
template <class T>
class Stage {
 public:
  Stage(const Turn& turn, int64_t size, float* memory) : turn_(turn), size_(size), next_(reinterpret_cast<T*>(memory)) {}

  Heads<const T> gather(Heads<const T> from, int64_t group) {
    const Heads<T> to = room(group);
    TRIREME_AT_LEVEL(move_heads<T>)(from, to, turn_.begin, turn_.end, turn_.first * group, turn_.last * group, size_);
    return to;
  }
  Heads<T> room(int64_t group) {
    const int64_t length = turn_.end - turn_.begin, first = turn_.first * group;
    const Heads<T> made{next_, size_, length * size_, (turn_.begin + first * length) * size_};
    next_ += (turn_.last - turn_.first) * group * length * size_;
    return made;
  }
  void scatter(Heads<T> from, Heads<T> to, int64_t group) const {
    TRIREME_AT_LEVEL(move_heads<T>)(from, to, turn_.begin, turn_.end, turn_.first * group, turn_.last * group, size_);
  }

 private:
  const Turn& turn_;
  int64_t size_;
  T* next_;
};

// task(turn, stage, workspace), the longest sequences first so that no thread begins one when the others are done.
template <class Task>
void for_each_turn(const AttentionShape& shape, const Plan& plan, int64_t workspace_floats, const Task& task) {
  std::vector<int64_t> order(shape.sequences());
  std::iota(order.begin(), order.end(), 0);
  auto length = [&](int64_t b) { return shape.cu_seqlens[b + 1] - shape.cu_seqlens[b]; };
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return length(a) > length(b); });
  const int64_t aligned_floats = (workspace_floats + 15) / 16 * 16;
  std::atomic<bool> out_of_memory = false;
  parallel_tasks(shape.sequences() * plan.turns, [&](int64_t i) {
    float* workspace = thread_workspace(aligned_floats + plan.stage_floats);
    if (!workspace) {
      out_of_memory = true;
      return;
    }
    const int64_t sequence = order[i / plan.turns], first = i % plan.turns * plan.heads;
    const Turn turn{sequence, shape.cu_seqlens[sequence], shape.cu_seqlens[sequence + 1], first,
                    std::min(first + plan.heads, shape.kv_heads)};
    if (turn.first < turn.last) task(turn, plan.stage_floats ? workspace + aligned_floats : nullptr, workspace);
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
  const int64_t group = shape.heads / shape.kv_heads;
  const Plan plan = plan_of<T>(shape, longest, 2, 2, q.token_stride > shape.head_size);
  for_each_turn(shape, plan, floats, [&](const Turn& turn, float* staging, float* workspace) {
    Stage<T> stage(turn, shape.head_size, staging);
    const auto rows_of = [&](Heads<const T> from, int64_t of) { return staging ? stage.gather(from, of) : from; };
    const Heads<const T> q_rows = rows_of(q, group), k_rows = rows_of(k, 1), v_rows = rows_of(v, 1);
    const Heads<T> out_rows = staging ? stage.room(group) : out;
    for (int64_t head = turn.first; head < turn.last; ++head)
      attend(biased, turn.sequence, head, q_rows, k_rows, v_rows, out_rows, softmax, workspace);
    if (staging) stage.scatter(out_rows, out, group);
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
  const int64_t group = shape.heads / shape.kv_heads;
  const Plan plan = plan_of<T>(shape, longest, 4, 4, q.token_stride > shape.head_size);
  for_each_turn(shape, plan, floats, [&](const Turn& turn, float* staging, float* workspace) {
    Stage<T> stage(turn, shape.head_size, staging);
    const auto rows_of = [&](Heads<const T> from, int64_t of) { return staging ? stage.gather(from, of) : from; };
    const Heads<const T> q_rows = rows_of(q, group), k_rows = rows_of(k, 1), v_rows = rows_of(v, 1),
                         out_rows = rows_of(out, group), out_gradient_rows = rows_of(out_gradient, group);
    AttentionGradients<T> made = gradients;
    if (staging) made.q = stage.room(group), made.k = stage.room(1), made.v = stage.room(1);
    for (int64_t head = turn.first; head < turn.last; ++head)
      attend(biased, turn.sequence, head, q_rows, k_rows, v_rows, out_rows, softmax, out_gradient_rows, made,
             &bias_sums[turn.sequence * width], workspace);
    if (!staging) return;
    stage.scatter(made.q, gradients.q, group);
    stage.scatter(made.k, gradients.k, 1);
    stage.scatter(made.v, gradients.v, 1);
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
