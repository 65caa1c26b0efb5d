// Attention of one sequence and one key head, per ISA level.
//
// Forward, for a block of kQueryRows query rows q (scaled) and all S keys, with the largest score m of each row:
//   s = q k^T;  p = exp(s - m);  p dropped;  out = p v / sum of the row
// Backward, with the logarithm l of that sum and delta = sum over d of out_gradient out, which is sum over j of p_dropped dp:
//   p = exp(q k^T - m - l);  dp = out_gradient v^T, dropped like p;  ds = p (dp - delta)
//   dv += p_dropped^T out_gradient;  dk += ds^T q;  dq = scale ds k
// m and l are not added up: where m is the lowest number there is, as in a row that a mask hides, l would be rounded off.
// A row whose scores are all minus infinity sees nothing: its result and its p are 0, which m = infinity says.
#include "trireme/kernels/gemm-inl.h"
#include "trireme/kernels/random-inl.h"

// 24 rows: a multiple of every tile's rows but 14, and with 384 keys 36 KiB of scores.
constexpr int64_t kQueryRows = 24;

constexpr int64_t whole_vectors(int64_t n) { return (n + kLanes - 1) / kLanes * kLanes; }

// Floats that a task needs; attention.cpp allocates them per thread.
int64_t attention_workspace(int64_t longest, int64_t head_size, bool backward) {
  int64_t keys = whole_vectors(longest), depth = whole_vectors(head_size);
  int64_t per_key = backward ? 5 * depth : 2 * depth, per_row = backward ? 2 * keys + 3 * depth : keys + 2 * depth;
  return keys * per_key + kQueryRows * per_row;
}

// Hands out pieces of a thread's workspace.
struct Arena {
  float* next;
  TRIREME_INLINE float* take(int64_t floats) {
    float* piece = next;
    next += floats;
    return piece;
  }
};

// What the rows of one query head in one sequence have in common.
struct Rows {
  const Dropout* dropout;
  const float* bias;  // of the first query, or null
  int64_t bias_stride;
  uint32_t head;
  int64_t first_token;
  int64_t keys;
  bool causal;

  TRIREME_INLINE int64_t visible(int64_t query) const { return causal && query + 1 < keys ? query + 1 : keys; }
};

Rows rows_of(const AttentionShape& shape, int64_t sequence, int64_t head) {
  const AttentionBias& bias = shape.bias;
  int64_t begin = shape.cu_seqlens[sequence], end = shape.cu_seqlens[sequence + 1];
  const float* data = bias.data ? bias.data + sequence * bias.sequence_stride + head * bias.head_stride : nullptr;
  return {&shape.dropout, data, bias.query_stride, static_cast<uint32_t>(head), begin, end - begin, shape.causal};
}

void add_bias(float* scores, const float* bias, int64_t visible) {
  for (int64_t j = 0; j < visible; j += kLanes)
    store_up_to(scores + j, load_up_to(scores + j, visible - j) + load_up_to(bias + j, visible - j), visible - j);
}

// Minus infinity from `visible` to the end of its vector: exp makes 0 of it.
TRIREME_INLINE void hide_tail(float* scores, int64_t visible) {
  const int64_t rest = visible % kLanes;
  if (rest == 0) return;
  float* last = scores + visible - rest;
  store(last, first_of(load(last), rest, broadcast(-__builtin_inff())));
}

TRIREME_INLINE float max_of(const float* x, int64_t n) {
  Floats largest = broadcast(-__builtin_inff());
  for (int64_t j = 0; j < n; j += kLanes) largest = max(load(x + j), largest);
  return max(largest);
}

// scores -> what is kept of exp(scores - max), unscaled; the columns up to `whole` that the row does not see become 0.
// Returns the sum before dropout.
template <bool with_dropout>
TRIREME_INLINE float exp_row(float* scores, const Rows& rows, int64_t query, int64_t visible, int64_t whole, float largest) {
  Floats total = {};
  int64_t end = whole_vectors(visible);
  for (int64_t block = 0; block < end; block += kDropoutColumns) {
    RandomBits bits;
    if constexpr (with_dropout)
      bits = random_bits(rows.dropout->seed, rows.head, static_cast<uint32_t>(rows.first_token + query),
                         static_cast<uint32_t>(block));
#pragma GCC unroll 32
    for (int i = 0; i < kDropoutColumns; i += kLanes) {
      if (block + i >= end) break;
      Floats p = exp(load(scores + block + i) - largest);
      total += p;
      store(scores + block + i, with_dropout ? keep(bits, i, rows.dropout->threshold, p) : p);
    }
  }
  for (int64_t j = end; j < whole; j += kLanes) store(scores + j, Floats{});
  return sum(total);
}

constexpr uintptr_t kLineBytes = 64;

// Every line that [data, data + bytes) touches: a row may begin anywhere in one.
TRIREME_INLINE void prefetch_lines(const void* data, int64_t bytes) {
  const uintptr_t begin = reinterpret_cast<uintptr_t>(data), end = begin + static_cast<uintptr_t>(bytes);
  for (uintptr_t line = begin / kLineBytes * kLineBytes; line < end; line += kLineBytes)
    __builtin_prefetch(reinterpret_cast<const void*>(line), 0, 2);
}

// The query head that a thread takes after `head`, and the tokens of its sequence.
struct Following {
  int64_t head, begin, length;
  bool other_keys;
};

Following following(const AttentionShape& shape, KeyHead now, KeyHead next, int64_t head) {
  const int64_t group = shape.heads / shape.kv_heads;
  const bool other_keys = head + 1 == (now.head + 1) * group;
  const int64_t sequence = other_keys ? next.sequence : now.sequence, begin = shape.cu_seqlens[sequence];
  return {other_keys ? next.head * group : head + 1, begin, shape.cu_seqlens[sequence + 1] - begin, other_keys};
}

struct Place {
  int64_t token, head;
};

// A block of queries after `row` of a head whose sequence is tokens begin to begin + length. No farther ahead: rows a token's width apart share
// few of the second-level cache's sets, and those of a whole head would drive each other out.
TRIREME_INLINE Place query_ahead(const Following& after, int64_t head, int64_t begin, int64_t length, int64_t row) {
  const int64_t past = row + kQueryRows - length;
  if (past < 0) return {begin + row + kQueryRows, head};
  return {after.begin + (past < after.length ? past : after.length - 1), after.head};
}

// Keys and values are packed at once when their head begins: all its rows must be there by then.
TRIREME_INLINE Place key_ahead(const Following& after, KeyHead next, int64_t row) {
  return {after.begin + (row < after.length ? row : after.length - 1), next.head};
}

// A row of each on its way into the second-level cache. The rows of a head lie a token's width apart, so the hardware does not see them coming,
// and waiting for them would be a sixth of the time. They are asked for one by one, between rows of exponentials: a processor has some 20 misses
// under way and drops what more is asked for.
template <class... T>
TRIREME_INLINE void prefetch_rows(Place place, int64_t size, Heads<T>... matrices) {
  (prefetch_lines(matrices.at(place.token, place.head), size * static_cast<int64_t>(sizeof(T))), ...);
}

template <class T>
void attend(const AttentionShape& shape, KeyHead now, KeyHead next, Heads<const T> q, Heads<const T> k, Heads<const T> v,
            Heads<T> out, float* softmax, float* workspace) {
  const auto [sequence, kv_head] = now;
  const int64_t begin = shape.cu_seqlens[sequence], length = shape.cu_seqlens[sequence + 1] - begin;
  const int64_t size = shape.head_size, depth = whole_vectors(size), keys = whole_vectors(length);
  Arena arena{workspace};
  float* k_panels = arena.take(keys * depth);
  float* v_rows = arena.take(keys * depth);
  float* q_rows = arena.take(kQueryRows * depth);
  float* result = arena.take(kQueryRows * depth);
  float* scores = arena.take(kQueryRows * keys);
  const float *k_bias = shape.k_bias + kv_head * size, *v_bias = shape.v_bias + kv_head * size;
  pack_transposed(k.at(begin, kv_head), k.token_stride, length, size, k_bias, k_panels);
  pack_rows(v.at(begin, kv_head), v.token_stride, length, size, v_bias, 1, v_rows, depth);

  const int64_t group = shape.heads / shape.kv_heads;
  for (int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
    const Rows rows = rows_of(shape, sequence, head);
    const Following after = following(shape, now, next, head);
    for (int64_t query = 0; query < length; query += kQueryRows) {
      const int64_t count = length - query < kQueryRows ? length - query : kQueryRows;
      const int64_t seen = rows.visible(query + count - 1);
      pack_rows(q.at(begin + query, head), q.token_stride, count, size, shape.q_bias + head * size, shape.scale, q_rows,
                depth);
      gemm_panels(count, whole_vectors(seen), keys, size, {q_rows, depth, 1}, k_panels, scores, keys);
      float inverse[kQueryRows];
      for (int64_t i = 0; i < count; ++i) {
        float* row = scores + i * keys;
        const int64_t visible = rows.visible(query + i);
        prefetch_rows({begin + query + i, head}, size, out);
        prefetch_rows(query_ahead(after, head, begin, length, query + i), size, q);
        if (after.other_keys) prefetch_rows(key_ahead(after, next, query + i), size, k, v);
        if (rows.bias) add_bias(row, rows.bias + (query + i) * rows.bias_stride, visible);
        hide_tail(row, visible);
        const float largest = max_of(row, whole_vectors(visible));
        const float shift = largest == -__builtin_inff() ? 0 : largest;
        const float total = shape.dropout.active()
                                ? exp_row<true>(row, rows, query + i, visible, whole_vectors(seen), shift)
                                : exp_row<false>(row, rows, query + i, visible, whole_vectors(seen), shift);
        const int64_t at = head * shape.tokens() + begin + query + i;
        const bool sees_nothing = total == 0;
        softmax[at] = sees_nothing ? __builtin_inff() : largest;
        softmax[shape.heads * shape.tokens() + at] = sees_nothing ? 0 : __builtin_logf(total);
        inverse[i] = sees_nothing ? 0 : shape.dropout.scale / total;
      }
      gemm_rows<false>(count, depth, seen, {scores, keys, 1}, v_rows, depth, result, depth);
      for (int64_t i = 0; i < count; ++i)
        for (int64_t d = 0; d < size; d += kLanes)
          store_up_to(out.at(begin + query + i, head) + d, load(result + i * depth + d) * inverse[i], size - d);
    }
  }
}

template <class T>
void copy_rows(const T* from, int64_t from_stride, int64_t rows, int64_t columns, float* to, int64_t stride) {
  for (int64_t m = 0; m < rows; ++m)
    for (int64_t n = 0; n < stride; n += kLanes)
      store(to + m * stride + n, load_up_to(from + m * from_stride + n, columns - n));
}

// scores, dp -> p dropped and scaled, ds. See the head of the file.
template <bool with_dropout>
TRIREME_INLINE void softmax_gradient_row(float* scores, float* dp, const Rows& rows, int64_t query, int64_t visible,
                                         int64_t whole, float largest, float log_sum, float delta) {
  const float scale = rows.dropout->scale;
  int64_t end = whole_vectors(visible);
  for (int64_t block = 0; block < end; block += kDropoutColumns) {
    RandomBits bits;
    if constexpr (with_dropout)
      bits = random_bits(rows.dropout->seed, rows.head, static_cast<uint32_t>(rows.first_token + query),
                         static_cast<uint32_t>(block));
#pragma GCC unroll 32
    for (int i = 0; i < kDropoutColumns; i += kLanes) {
      if (block + i >= end) break;
      int64_t j = block + i;
      Floats p = exp(load(scores + j) - largest - log_sum), gradient = load(dp + j);
      Floats dropped = p;
      if constexpr (with_dropout) {
        dropped = keep(bits, i, rows.dropout->threshold, p * scale);
        gradient = keep(bits, i, rows.dropout->threshold, gradient * scale);
      }
      store(scores + j, dropped);
      store(dp + j, p * (gradient - delta));
    }
  }
  for (int64_t j = end; j < whole; j += kLanes) {
    store(scores + j, Floats{});
    store(dp + j, Floats{});
  }
}

template <class T>
TRIREME_INLINE float dot(const T* a, const T* b, int64_t n) {
  Floats total = {};
  for (int64_t i = 0; i < n; i += kLanes) total = fma(load_up_to(a + i, n - i), load_up_to(b + i, n - i), total);
  return sum(total);
}

// from * factor -> to, and its sums over the rows added to `sums`.
template <class T>
void unpack_rows(const float* from, int64_t stride, int64_t rows, int64_t columns, float factor, T* to, int64_t to_stride,
                 float* sums) {
  for (int64_t n = 0; n < columns; n += kLanes) {
    Floats total = load_up_to(sums + n, columns - n);
    for (int64_t m = 0; m < rows; ++m) {
      Floats x = load(from + m * stride + n) * factor;
      total += x;
      store_up_to(to + m * to_stride + n, x, columns - n);
    }
    store_up_to(sums + n, total, columns - n);
  }
}

// bias_sums has [heads + 2 kv_heads, head_size] elements for this sequence, zeros at first; a task adds to those of its
// heads.
template <class T>
void attend_backward(const AttentionShape& shape, KeyHead now, KeyHead next, Heads<const T> q, Heads<const T> k,
                     Heads<const T> v, Heads<const T> out, const float* softmax, Heads<const T> out_gradient,
                     const AttentionGradients<T>& gradients, float* bias_sums, float* workspace) {
  const auto [sequence, kv_head] = now;
  const int64_t begin = shape.cu_seqlens[sequence], length = shape.cu_seqlens[sequence + 1] - begin;
  const int64_t size = shape.head_size, depth = whole_vectors(size), keys = whole_vectors(length);
  Arena arena{workspace};
  float* k_panels = arena.take(keys * depth);
  float* v_panels = arena.take(keys * depth);
  float* k_rows = arena.take(keys * depth);
  float* k_gradient = arena.take(keys * depth);
  float* v_gradient = arena.take(keys * depth);
  float* q_rows = arena.take(kQueryRows * depth);
  float* o_gradient = arena.take(kQueryRows * depth);
  float* q_gradient = arena.take(kQueryRows * depth);
  float* scores = arena.take(kQueryRows * keys);
  float* dp = arena.take(kQueryRows * keys);
  const float *k_bias = shape.k_bias + kv_head * size, *v_bias = shape.v_bias + kv_head * size;
  pack_transposed(k.at(begin, kv_head), k.token_stride, length, size, k_bias, k_panels);
  pack_transposed(v.at(begin, kv_head), v.token_stride, length, size, v_bias, v_panels);
  pack_rows(k.at(begin, kv_head), k.token_stride, length, size, k_bias, 1, k_rows, depth);
  __builtin_memset(k_gradient, 0, length * depth * sizeof(float));
  __builtin_memset(v_gradient, 0, length * depth * sizeof(float));

  const int64_t group = shape.heads / shape.kv_heads;
  for (int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
    const Rows rows = rows_of(shape, sequence, head);
    const Following after = following(shape, now, next, head);
    for (int64_t query = 0; query < length; query += kQueryRows) {
      const int64_t count = length - query < kQueryRows ? length - query : kQueryRows, token = begin + query;
      const int64_t seen = rows.visible(query + count - 1);
      pack_rows(q.at(token, head), q.token_stride, count, size, shape.q_bias + head * size, shape.scale, q_rows, depth);
      copy_rows(out_gradient.at(token, head), out_gradient.token_stride, count, size, o_gradient, depth);
      gemm_panels(count, whole_vectors(seen), keys, size, {q_rows, depth, 1}, k_panels, scores, keys);
      gemm_panels(count, whole_vectors(seen), keys, size, {o_gradient, depth, 1}, v_panels, dp, keys);
      for (int64_t i = 0; i < count; ++i) {
        const int64_t visible = rows.visible(query + i);
        const int64_t at = head * shape.tokens() + token + i;
        prefetch_rows({token + i, head}, size, gradients.q);
        prefetch_rows(query_ahead(after, head, begin, length, query + i), size, q, out, out_gradient);
        if (after.other_keys) {
          prefetch_rows({token + i, kv_head}, size, gradients.k, gradients.v);
          prefetch_rows(key_ahead(after, next, query + i), size, k, v);
        }
        const float largest = softmax[at], log_sum = softmax[shape.heads * shape.tokens() + at];
        const float delta = dot(out_gradient.at(token + i, head), out.at(token + i, head), size);
        float *row = scores + i * keys, *dp_row = dp + i * keys;
        if (rows.bias) add_bias(row, rows.bias + (query + i) * rows.bias_stride, visible);
        hide_tail(row, visible);
        if (shape.dropout.active())
          softmax_gradient_row<true>(row, dp_row, rows, query + i, visible, whole_vectors(seen), largest, log_sum, delta);
        else
          softmax_gradient_row<false>(row, dp_row, rows, query + i, visible, whole_vectors(seen), largest, log_sum, delta);
      }
      gemm_rows<true>(seen, depth, count, {scores, 1, keys}, o_gradient, depth, v_gradient, depth);
      gemm_rows<true>(seen, depth, count, {dp, 1, keys}, q_rows, depth, k_gradient, depth);
      gemm_rows<false>(count, depth, seen, {dp, keys, 1}, k_rows, depth, q_gradient, depth);
      unpack_rows(q_gradient, depth, count, size, shape.scale, gradients.q.at(token, head), gradients.q.token_stride,
                  bias_sums + head * size);
    }
  }
  float *k_sums = bias_sums + (shape.heads + kv_head) * size, *v_sums = k_sums + shape.kv_heads * size;
  unpack_rows(k_gradient, depth, length, size, 1, gradients.k.at(begin, kv_head), gradients.k.token_stride, k_sums);
  unpack_rows(v_gradient, depth, length, size, 1, gradients.v.at(begin, kv_head), gradients.v.token_stride, v_sums);
}
