// The conversions of bf16.h, one element at a time.
#include <bit>

#include "trireme/kernels/bf16.h"

namespace trireme::kernels {

void convert_ref(const float* from, bfloat16* to, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] = to_bfloat16(from[i]);
}

void convert_ref(const bfloat16* from, float* to, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] = to_float(from[i]);
}

void split_ref(const float* from, bfloat16* upper, uint16_t* lower, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    uint32_t bits = std::bit_cast<uint32_t>(from[i]);
    if ((bits & 0x7fffffff) > 0x7f800000) bits |= 0x400000;
    upper[i] = {static_cast<uint16_t>(bits >> 16)};
    lower[i] = static_cast<uint16_t>(bits);
  }
}

void join_ref(const bfloat16* upper, const uint16_t* lower, float* to, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] = std::bit_cast<float>(uint32_t{upper[i].bits} << 16 | lower[i]);
}

}  // namespace trireme::kernels
