// The reduction for AVX-512 (F, BW, DQ, VL).
#include <immintrin.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "trireme/ccl/reduction/reduce_kernels.h"
#include "trireme/cpu/target_region.h"
#include "trireme/cpu/vector_types.h"

namespace trireme::ccl {

TRIREME_BEGIN_AVX512
namespace {

constexpr size_t kVectorBytes = 64;

template <class T>
using Vec = VectorOf<T, kVectorBytes>;
using HalfVector = VectorOf<uint16_t, kVectorBytes / 2>;

// The forms with a mask, all of it set: g++ 12 warns of an uninitialised variable inside the plain ones.
constexpr __mmask16 kAllLanes = 0xffff;

inline Vec<uint32_t> zero_extend(HalfVector x) { return (Vec<uint32_t>)_mm512_maskz_cvtepu16_epi32(kAllLanes, (__m256i)x); }

inline Vec<float> widen(HalfVector x) { return (Vec<float>)_mm512_maskz_cvtph_ps(kAllLanes, (__m256i)x); }

inline HalfVector narrow(Vec<float> x) {
  return (HalfVector)_mm512_maskz_cvtps_ph(kAllLanes, (__m512)x, _MM_FROUND_TO_NEAREST_INT);
}

template <class V>
inline void stream(V x, char* to) {
  if constexpr (sizeof(V) == 64)
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to), (__m512i)x);
  else
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to), (__m256i)x);
}

inline void stream_fence() { _mm_sfence(); }

#include "trireme/ccl/reduction/reduce-inl.h"

}  // namespace

void reduce_avx512(const ReduceCall& call) { reduce_at_this_level(call); }

TRIREME_END_TARGET

}  // namespace trireme::ccl
