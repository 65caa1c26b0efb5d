// Arrays of float and bfloat16. Large results are stored past the cache: whoever reads them next finds it full of other
// things anyway.
//
// Split bf16: a float's upper 16 bits, which are the float truncated to bfloat16, lie in one array, its lower 16 bits in
// another. A model computes with the first, an optimizer joins both: fp32 weights in the memory of fp32 weights, with
// nothing stored twice.
#pragma once

#include <cstdint>

#include "trireme/base/float16.h"

namespace trireme::kernels {

// Rounds to nearest even; NaN stays NaN.
void convert(const float* from, bfloat16* to, int64_t n);
void convert(const bfloat16* from, float* to, int64_t n);

// join(split(x)) is x, bit for bit, but for a NaN whose payload lies in its lower half alone: its quiet bit is set, or
// `upper` would say infinity.
void split(const float* from, bfloat16* upper, uint16_t* lower, int64_t n);
void join(const bfloat16* upper, const uint16_t* lower, float* to, int64_t n);

void convert_ref(const float* from, bfloat16* to, int64_t n);
void convert_ref(const bfloat16* from, float* to, int64_t n);
void split_ref(const float* from, bfloat16* upper, uint16_t* lower, int64_t n);
void join_ref(const bfloat16* upper, const uint16_t* lower, float* to, int64_t n);

}  // namespace trireme::kernels
