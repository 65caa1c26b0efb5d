// Plain dropout, per ISA level.
#include "trireme/kernels/random-inl.h"

template <class T>
void dropout_rows(const T* x, T* y, int64_t begin, int64_t end, int64_t columns, const Dropout& dropout) {
  for (int64_t row = begin; row < end; ++row) {
    const T* from = x + row * columns;
    T* to = y + row * columns;
    for (int64_t block = 0; block < columns; block += kDropoutColumns) {
      RandomBits bits = random_bits(dropout.seed, 0, static_cast<uint32_t>(row), static_cast<uint32_t>(block));
#pragma GCC unroll 32
      for (int i = 0; i < kDropoutColumns; i += kLanes) {
        int64_t left = columns - block - i;
        if (left <= 0) break;
        store_up_to(to + block + i, keep(bits, i, dropout.threshold, load_up_to(from + block + i, left) * dropout.scale),
                    left);
      }
    }
  }
}
