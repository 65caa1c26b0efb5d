// The vocabulary of simd-inl.h for AVX2 with FMA.

constexpr size_t kVectorBytes = 32;
constexpr int kLanes = kVectorBytes / sizeof(float);
constexpr int kRegisters = 16;

template <class T>
using Vec = VectorOf<T, kVectorBytes>;
using Floats = Vec<float>;
using Ints = Vec<int32_t>;
using Words = Vec<uint32_t>;
using Halves = VectorOf<uint16_t, kVectorBytes / 2>;

TRIREME_INLINE Floats fma(Floats a, Floats b, Floats c) { return (Floats)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c); }

TRIREME_INLINE Floats sqrt(Floats x) { return (Floats)_mm256_sqrt_ps((__m256)x); }

TRIREME_INLINE Floats round(Floats x) {
  return (Floats)_mm256_round_ps((__m256)x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

TRIREME_INLINE Floats max(Floats a, Floats b) { return (Floats)_mm256_max_ps((__m256)a, (__m256)b); }
TRIREME_INLINE Floats min(Floats a, Floats b) { return (Floats)_mm256_min_ps((__m256)a, (__m256)b); }

// 2^n by its bits: 0 and infinity at the ends.
TRIREME_INLINE Floats times_power_of_two(Floats x, Floats n) {
  return x * (Floats)((__builtin_convertvector(n, Ints) + 127) << 23);
}

TRIREME_INLINE Vec<uint64_t> multiply_lower(Vec<uint64_t> a, Vec<uint64_t> b) {
  return (Vec<uint64_t>)_mm256_mul_epu32((__m256i)a, (__m256i)b);
}

TRIREME_INLINE Words zero_extend(Halves x) { return (Words)_mm256_cvtepu16_epi32((__m128i)x); }

TRIREME_INLINE Halves truncate(Words x) {
  __m256i low = (__m256i)(x & 0xffffu);
  return (Halves)_mm_packus_epi32(_mm256_castsi256_si128(low), _mm256_extracti128_si256(low, 1));
}

TRIREME_INLINE Vec<double> widen_lower(Floats x) { return (Vec<double>)_mm256_cvtps_pd(_mm256_castps256_ps128((__m256)x)); }
TRIREME_INLINE Vec<double> widen_upper(Floats x) { return (Vec<double>)_mm256_cvtps_pd(_mm256_extractf128_ps((__m256)x, 1)); }

TRIREME_INLINE float sum(Floats x) {
  __m128 four = _mm_add_ps(_mm256_castps256_ps128((__m256)x), _mm256_extractf128_ps((__m256)x, 1));
  __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

TRIREME_INLINE float max(Floats x) {
  __m128 four = _mm_max_ps(_mm256_castps256_ps128((__m256)x), _mm256_extractf128_ps((__m256)x, 1));
  __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

// All bits set in the first n lanes.
TRIREME_INLINE Ints first_lanes(int n) {
  Ints lane = {0, 1, 2, 3, 4, 5, 6, 7};
  return lane < n;
}

TRIREME_INLINE Floats load_first(const float* from, int n) {
  return (Floats)_mm256_maskload_ps(from, (__m256i)first_lanes(n));
}

TRIREME_INLINE void store_first(float* to, Floats x, int n) { _mm256_maskstore_ps(to, (__m256i)first_lanes(n), (__m256)x); }

TRIREME_INLINE void stream(float* to, Floats x) { _mm256_stream_ps(to, (__m256)x); }
TRIREME_INLINE void stream(uint16_t* to, Halves x) { _mm_stream_si128((__m128i*)to, (__m128i)x); }
TRIREME_INLINE void finish_streams() { _mm_sfence(); }
