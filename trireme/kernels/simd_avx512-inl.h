// The vocabulary of simd-inl.h for AVX-512 (F, BW, DQ, VL).

constexpr size_t kVectorBytes = 64;
constexpr int kLanes = kVectorBytes / sizeof(float);
constexpr int kRegisters = 32;

template <class T>
using Vec = VectorOf<T, kVectorBytes>;
using Floats = Vec<float>;
using Ints = Vec<int32_t>;
using Words = Vec<uint32_t>;
using Halves = VectorOf<uint16_t, kVectorBytes / 2>;

// The forms with a mask, all of it set: g++ 12 warns of an uninitialised variable inside the plain ones.
constexpr __mmask16 kAllLanes = 0xffff;

TRIREME_INLINE Floats fma(Floats a, Floats b, Floats c) { return (Floats)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c); }

TRIREME_INLINE Floats sqrt(Floats x) { return (Floats)_mm512_maskz_sqrt_ps(kAllLanes, (__m512)x); }

TRIREME_INLINE Floats round(Floats x) {
  return (Floats)_mm512_maskz_roundscale_ps(kAllLanes, (__m512)x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

TRIREME_INLINE Floats max(Floats a, Floats b) { return (Floats)_mm512_maskz_max_ps(kAllLanes, (__m512)a, (__m512)b); }
TRIREME_INLINE Floats min(Floats a, Floats b) { return (Floats)_mm512_maskz_min_ps(kAllLanes, (__m512)a, (__m512)b); }

// "Not less", which holds for NaN.
TRIREME_INLINE Floats times_power_of_two(Floats x, Floats n) {
  return (Floats)_mm512_maskz_scalef_ps(_mm512_cmp_ps_mask((__m512)n, _mm512_set1_ps(-126), _CMP_NLT_UQ), (__m512)x, (__m512)n);
}

TRIREME_INLINE Vec<uint64_t> multiply_lower(Vec<uint64_t> a, Vec<uint64_t> b) {
  return (Vec<uint64_t>)_mm512_maskz_mul_epu32(0xff, (__m512i)a, (__m512i)b);
}

TRIREME_INLINE Words zero_extend(Halves x) { return (Words)_mm512_maskz_cvtepu16_epi32(kAllLanes, (__m256i)x); }
TRIREME_INLINE Halves truncate(Words x) { return (Halves)_mm512_maskz_cvtepi32_epi16(kAllLanes, (__m512i)x); }

TRIREME_INLINE VectorOf<float, 32> lower(Floats x) { return __builtin_shufflevector(x, x, 0, 1, 2, 3, 4, 5, 6, 7); }
TRIREME_INLINE VectorOf<float, 32> upper(Floats x) { return __builtin_shufflevector(x, x, 8, 9, 10, 11, 12, 13, 14, 15); }

TRIREME_INLINE Vec<double> widen_lower(Floats x) { return (Vec<double>)_mm512_maskz_cvtps_pd(0xff, _mm512_maskz_extractf32x8_ps(0xff, (__m512)x, 0)); }
TRIREME_INLINE Vec<double> widen_upper(Floats x) { return (Vec<double>)_mm512_maskz_cvtps_pd(0xff, (__m256)upper(x)); }

TRIREME_INLINE float sum(Floats x) {
  __m256 eight = (__m256)(lower(x) + upper(x));
  __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

TRIREME_INLINE float max(Floats x) {
  __m256 eight = _mm256_max_ps((__m256)lower(x), (__m256)upper(x));
  __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

TRIREME_INLINE __mmask16 first_lanes(int n) { return static_cast<__mmask16>((1u << n) - 1); }

TRIREME_INLINE Floats load_first(const float* from, int n) { return (Floats)_mm512_maskz_loadu_ps(first_lanes(n), from); }

TRIREME_INLINE void store_first(float* to, Floats x, int n) { _mm512_mask_storeu_ps(to, first_lanes(n), (__m512)x); }

TRIREME_INLINE void stream(float* to, Floats x) { _mm512_stream_ps(to, (__m512)x); }
TRIREME_INLINE void stream(uint16_t* to, Halves x) { _mm256_stream_si256((__m256i*)to, (__m256i)x); }
TRIREME_INLINE void finish_streams() { _mm_sfence(); }
