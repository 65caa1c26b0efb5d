// The vocabulary of simd-inl.h for any CPU: vectors of 16 bytes, which every compiler can lower.

constexpr size_t kVectorBytes = 16;
constexpr int kLanes = kVectorBytes / sizeof(float);
constexpr int kRegisters = 16;

template <class T>
using Vec = VectorOf<T, kVectorBytes>;
using Floats = Vec<float>;
using Ints = Vec<int32_t>;
using Words = Vec<uint32_t>;
using Halves = VectorOf<uint16_t, kVectorBytes / 2>;

TRIREME_INLINE Floats fma(Floats a, Floats b, Floats c) { return a * b + c; }

TRIREME_INLINE Floats sqrt(Floats x) {
  for (int i = 0; i < kLanes; ++i) x[i] = __builtin_sqrtf(x[i]);
  return x;
}

// Nearest integer, for |x| < 2^22: adding 1.5 * 2^23 leaves no bits for a fraction.
TRIREME_INLINE Floats round(Floats x) { return (x + 12582912.0f) - 12582912.0f; }

TRIREME_INLINE Floats max(Floats a, Floats b) { return a > b ? a : b; }
TRIREME_INLINE Floats min(Floats a, Floats b) { return a < b ? a : b; }

// 2^n by its bits: 0 and infinity at the ends.
TRIREME_INLINE Floats times_power_of_two(Floats x, Floats n) {
  return x * (Floats)((__builtin_convertvector(n, Ints) + 127) << 23);
}

// The product of the lower halves of 64-bit lanes.
TRIREME_INLINE Vec<uint64_t> multiply_lower(Vec<uint64_t> a, Vec<uint64_t> b) {
  return (a & 0xffffffffu) * (b & 0xffffffffu);
}

TRIREME_INLINE Words zero_extend(Halves x) { return __builtin_convertvector(x, Words); }
TRIREME_INLINE Halves truncate(Words x) { return __builtin_convertvector(x, Halves); }

TRIREME_INLINE Vec<double> widen_lower(Floats x) { return Vec<double>{x[0], x[1]}; }
TRIREME_INLINE Vec<double> widen_upper(Floats x) { return Vec<double>{x[2], x[3]}; }

TRIREME_INLINE float sum(Floats x) { return (x[0] + x[2]) + (x[1] + x[3]); }
TRIREME_INLINE float max(Floats x) {
  float a = x[0] > x[2] ? x[0] : x[2], b = x[1] > x[3] ? x[1] : x[3];
  return a > b ? a : b;
}

TRIREME_INLINE Floats load_first(const float* from, int n) {
  Floats x = {};
  __builtin_memcpy(&x, from, n * sizeof(float));
  return x;
}
TRIREME_INLINE void store_first(float* to, Floats x, int n) { __builtin_memcpy(to, &x, n * sizeof(float)); }

// Ordinary stores: not every CPU has others.
TRIREME_INLINE void stream(float* to, Floats x) { __builtin_memcpy(to, &x, sizeof x); }
TRIREME_INLINE void stream(uint16_t* to, Halves x) { __builtin_memcpy(to, &x, sizeof x); }
TRIREME_INLINE void finish_streams() {}
