// The reduction for AVX2 with F16C.
#include <immintrin.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "trireme/ccl/reduction/reduce_kernels.h"
#include "trireme/cpu/target_region.h"
#include "trireme/cpu/vector_types.h"

namespace trireme::ccl {

TRIREME_BEGIN_AVX2
namespace {

constexpr size_t kVectorBytes = 32;

template <class T>
using Vec = VectorOf<T, kVectorBytes>;
using HalfVector = VectorOf<uint16_t, kVectorBytes / 2>;

inline Vec<uint32_t> zero_extend(HalfVector x) { return (Vec<uint32_t>)_mm256_cvtepu16_epi32((__m128i)x); }

inline Vec<float> widen(HalfVector x) { return (Vec<float>)_mm256_cvtph_ps((__m128i)x); }

inline HalfVector narrow(Vec<float> x) { return (HalfVector)_mm256_cvtps_ph((__m256)x, _MM_FROUND_TO_NEAREST_INT); }

template <class V>
inline void stream(V x, char* to) {
  if constexpr (sizeof(V) == 32)
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to), (__m256i)x);
  else
    _mm_stream_si128(reinterpret_cast<__m128i*>(to), (__m128i)x);
}

inline void stream_fence() { _mm_sfence(); }

#include "trireme/ccl/reduction/reduce-inl.h"

}  // namespace

void reduce_avx2(const ReduceCall& call) { reduce_at_this_level(call); }

TRIREME_END_TARGET

}  // namespace trireme::ccl
