// Dropout without a stored mask. Whether an element is kept is a pure function of a seed and the element's place: the
// backward pass, a checkpoint's recomputation and any number of threads or ISA level see the same mask.
//
// The function is Philox4x32 with 7 rounds (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3"; 7 is the number
// that passes BigCrush with a margin). Key: the seed. Counter: (group of columns, row, stream, 0). One counter gives 128
// bits, 16 for each of 8 elements: the probability is rounded to a multiple of 2^-16, and the scale is the inverse of the
// rounded one, so that the expectation is exact.
#pragma once

#include <cstdint>

#include "trireme/base/float16.h"

namespace trireme::kernels {

struct Dropout {
  uint64_t seed = 0;
  uint32_t threshold = 0;  // dropped where the 16 bits are below it; 0: nothing is, 65536: everything
  float scale = 1;         // of what is kept

  bool active() const { return threshold != 0; }
};

// p in [0, 1], else InvalidArgument.
Dropout make_dropout(double p, uint64_t seed);

// What the kernels compute, one element at a time.
bool keeps_ref(const Dropout& dropout, uint32_t stream, uint32_t row, uint32_t column);

// y[i] = keeps(0, i / columns, i % columns) ? x[i] * scale : 0. In place if y == x. Applied to a gradient it is the backward
// pass.
void dropout(const float* x, float* y, int64_t rows, int64_t columns, const Dropout& dropout);
void dropout(const bfloat16* x, bfloat16* y, int64_t rows, int64_t columns, const Dropout& dropout);
void dropout_ref(const float* x, float* y, int64_t rows, int64_t columns, const Dropout& dropout);

}  // namespace trireme::kernels
