// Embeddings, per ISA level. gamma and beta are there; ids are in their tables.
#include "trireme/kernels/norm_row-inl.h"
#include "trireme/kernels/residual_row-inl.h"

TRIREME_INLINE const float* row_of(const EmbeddingTable& table, int64_t row, int64_t H) {
  return table.weight ? table.weight + table.ids[row] * H : nullptr;
}

// to = the sum of a row's embeddings, in the same order forward and backward.
TRIREME_INLINE void embed_row(const EmbeddingInput& input, int64_t row, float* to) {
  const float* word = row_of(input.word, row, input.H);
  const float* position = row_of(input.position, row, input.H);
  const float* type = row_of(input.type, row, input.H);
  for (int64_t i = 0; i < input.H; i += kLanes) {
    int64_t left = input.H - i;
    Floats z = load_up_to(word + i, left);
    if (position) z += load_up_to(position + i, left);
    if (type) z += load_up_to(type + i, left);
    store_up_to(to + i, z, left);
  }
}

// z: room for H floats.
template <class T>
void embedding_rows(const EmbeddingForward<T>& call, const float* gamma, const float* beta, float* z, int64_t begin,
                    int64_t end) {
  const int64_t H = call.input.H;
  for (int64_t row = begin; row < end; ++row) {
    embed_row(call.input, row, z);
    Moments moments = moments_of(z, H, call.eps);
    if (call.mean) call.mean[row] = moments.mean;
    if (call.rstd) call.rstd[row] = moments.rstd;
    normalise_row(z, moments, gamma, beta, z, H);
    drop_row(z, call.y + row * H, H, row, call.dropout);
  }
}

// z, dropped: room for H floats each.
template <class T>
void embedding_backward_rows(const EmbeddingBackward<T>& call, const float* gamma, float* z, float* dropped, int64_t begin,
                             int64_t end, float* dgamma, float* dbeta) {
  const int64_t H = call.input.H;
  for (int64_t row = begin; row < end; ++row) {
    embed_row(call.input, row, z);
    drop_row(call.dy + row * H, dropped, H, row, call.dropout);
    normalise_row_backward(dropped, z, {call.mean[row], call.rstd[row]}, gamma, call.dz + row * H, dgamma, dbeta, H);
  }
}

// sum += the rows of dz that `rows` names, in order. Columns go in blocks that stay in registers while the rows pass.
void sum_named_rows(const float* dz, const int64_t* rows, int64_t count, float* sum, int64_t H) {
  constexpr int kBlock = 8;
  int64_t i = 0;
  for (; i + kBlock * kLanes <= H; i += kBlock * kLanes) {
    Floats total[kBlock];
#pragma GCC unroll 8
    for (int k = 0; k < kBlock; ++k) total[k] = load(sum + i + k * kLanes);
    for (int64_t r = 0; r < count; ++r) {
      const float* from = dz + rows[r] * H + i;
#pragma GCC unroll 8
      for (int k = 0; k < kBlock; ++k) total[k] += load(from + k * kLanes);
    }
#pragma GCC unroll 8
    for (int k = 0; k < kBlock; ++k) store(sum + i + k * kLanes, total[k]);
  }
  for (; i < H; i += kLanes) {
    Floats total = load_up_to(sum + i, H - i);
    for (int64_t r = 0; r < count; ++r) total += load_up_to(dz + rows[r] * H + i, H - i);
    store_up_to(sum + i, total, H - i);
  }
}

// partial[id * stride] += dz[row] for every row in [begin, end) with its id, but the padding's.
void sum_by_id(const float* dz, const int64_t* ids, int64_t padding_idx, int64_t begin, int64_t end, float* partial,
               int64_t stride, int64_t H) {
  for (int64_t row = begin; row < end; ++row) {
    if (ids[row] == padding_idx) continue;
    float* to = partial + ids[row] * stride;
    for (int64_t i = 0; i < H; i += kLanes) store(to + i, load(to + i) + load_up_to(dz + row * H + i, H - i));
  }
}
