// The two 16-bit floating-point formats, as bit patterns, and their exact conversions.
// float -> 16 bit rounds to nearest, ties to even; NaN stays NaN.
#pragma once

#include <bit>
#include <cstdint>

namespace trireme {

struct bfloat16 {
  uint16_t bits;
};

struct float16 {
  uint16_t bits;
};

inline float to_float(bfloat16 x) { return std::bit_cast<float>(uint32_t{x.bits} << 16); }

inline bfloat16 to_bfloat16(float x) {
  uint32_t bits = std::bit_cast<uint32_t>(x);
  if ((bits & 0x7fffffff) > 0x7f800000) return {static_cast<uint16_t>((bits >> 16) | 0x40)};
  // Adding 0x7fff plus the lowest kept bit carries into the kept half exactly when rounding up is due.
  return {static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16)};
}

float to_float(float16 x);
float16 to_float16(float x);

}  // namespace trireme
