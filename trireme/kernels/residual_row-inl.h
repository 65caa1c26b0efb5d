// Bias, dropout and residual connection for one row, per ISA level. Columns go in blocks of 128, which is what one set of
// random bits serves.
#include "trireme/kernels/random-inl.h"

// y = dropout(x) for a row; T may change on the way.
template <bool kDrop, class From, class To>
TRIREME_INLINE void drop_row_as(const From* x, To* y, int64_t H, int64_t row, const Dropout& dropout) {
  for (int64_t block = 0; block < H; block += kDropoutColumns) {
    RandomBits bits = {};
    if constexpr (kDrop) bits = random_bits(dropout.seed, 0, static_cast<uint32_t>(row), static_cast<uint32_t>(block));
#pragma GCC unroll 32
    for (int i = 0; i < kDropoutColumns; i += kLanes) {
      int64_t at = block + i, left = H - at;
      if (left <= 0) break;
      Floats value = load_up_to(x + at, left);
      if constexpr (kDrop) value = keep(bits, i, dropout.threshold, value * dropout.scale);
      store_up_to(y + at, value, left);
    }
  }
}
template <class From, class To>
TRIREME_INLINE void drop_row(const From* x, To* y, int64_t H, int64_t row, const Dropout& dropout) {
  if (dropout.active())
    drop_row_as<true>(x, y, H, row, dropout);
  else
    drop_row_as<false>(x, y, H, row, dropout);
}

// z = dropout(x + bias) + residual; residual may be null.
template <bool kDrop, class T>
TRIREME_INLINE void compose_row_as(const T* x, const float* bias, const T* residual, T* z, int64_t H, int64_t row,
                                   const Dropout& dropout) {
  for (int64_t block = 0; block < H; block += kDropoutColumns) {
    RandomBits bits = {};
    if constexpr (kDrop) bits = random_bits(dropout.seed, 0, static_cast<uint32_t>(row), static_cast<uint32_t>(block));
#pragma GCC unroll 32
    for (int i = 0; i < kDropoutColumns; i += kLanes) {
      int64_t at = block + i, left = H - at;
      if (left <= 0) break;
      Floats value = load_up_to(x + at, left) + load_up_to(bias + at, left);
      if constexpr (kDrop) value = keep(bits, i, dropout.threshold, value * dropout.scale);
      if (residual) value += load_up_to(residual + at, left);
      store_up_to(z + at, value, left);
    }
  }
}
template <class T>
TRIREME_INLINE void compose_row(const T* x, const float* bias, const T* residual, T* z, int64_t H, int64_t row,
                                const Dropout& dropout) {
  if (dropout.active())
    compose_row_as<true>(x, bias, residual, z, H, row, dropout);
  else
    compose_row_as<false>(x, bias, residual, z, H, row, dropout);
}

// dx = dropout(dz), dbias += dx. dbias is a partial sum of ColumnSums: whole vectors may be read and written there.
template <bool kDrop, class T>
TRIREME_INLINE void compose_row_backward_as(const T* dz, T* dx, float* dbias, int64_t H, int64_t row,
                                            const Dropout& dropout) {
  for (int64_t block = 0; block < H; block += kDropoutColumns) {
    RandomBits bits = {};
    if constexpr (kDrop) bits = random_bits(dropout.seed, 0, static_cast<uint32_t>(row), static_cast<uint32_t>(block));
#pragma GCC unroll 32
    for (int i = 0; i < kDropoutColumns; i += kLanes) {
      int64_t at = block + i, left = H - at;
      if (left <= 0) break;
      Floats value = load_up_to(dz + at, left);
      if constexpr (kDrop) value = keep(bits, i, dropout.threshold, value * dropout.scale);
      store(dbias + at, load(dbias + at) + value);
      if (kDrop || dx != dz) store_up_to(dx + at, value, left);
    }
  }
}
template <class T>
TRIREME_INLINE void compose_row_backward(const T* dz, T* dx, float* dbias, int64_t H, int64_t row, const Dropout& dropout) {
  if (dropout.active())
    compose_row_backward_as<true>(dz, dx, dbias, H, row, dropout);
  else
    compose_row_backward_as<false>(dz, dx, dbias, H, row, dropout);
}
