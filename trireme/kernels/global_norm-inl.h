// The sum of squares of a chunk, per ISA level.
#include "trireme/kernels/sum_of_squares-inl.h"

template <class T>
double sum_of_squares_part(const T* x, int64_t n) {
  SumOfSquares sum;
  int64_t i = 0;
  for (; i + kSums <= n; i += kSums)
#pragma GCC unroll 8
    for (int place = 0; place < kSums; place += kLanes) sum.add(place, load(x + i + place));
  for (int place = 0; i + place < n; place += kLanes) sum.add(place, load_up_to(x + i + place, n - i - place));
  return sum.total();
}
