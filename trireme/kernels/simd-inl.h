// What kernels are written with: the compiler's own vector types and operators, and these functions. The file of the level,
// simd_<level>-inl.h, defines the types Floats, Ints, Words (uint32_t) of kLanes each, Halves (uint16_t), and
//   fma, sqrt, round(Floats)           multiply_lower(uint64 lanes)
//   min, max(Floats, Floats)           b where either is NaN
//   sum, max (over the lanes)          zero_extend(Halves), truncate(Words)
//   widen_lower, widen_upper(Floats)   half of the lanes as doubles
//   times_power_of_two(x, n)           x 2^n for integers -127 <= n <= 128; 0 where n is -127. NaN stays
//   load_first(float*, n), store_first(float*, Floats, n)   the first n <= kLanes elements; touches no others, 0 where not
//   loaded
//   stream(float*, Floats), stream(uint16_t*, Halves)       stores past the cache, to aligned places; finish_streams()
//   before others read
// Everything here is compiled per level. Elements in memory are float or bfloat16; in registers they are always floats.

// x - 0 is x for every x, and the compiler knows it; 0 + x is not.
TRIREME_INLINE Floats broadcast(float x) { return x - Floats{}; }

TRIREME_INLINE Floats load(const float* from) {
  Floats x;
  __builtin_memcpy(&x, from, sizeof x);
  return x;
}
TRIREME_INLINE void store(float* to, Floats x) { __builtin_memcpy(to, &x, sizeof x); }

TRIREME_INLINE Floats from_bfloat16(Halves x) { return (Floats)(zero_extend(x) << 16); }

// To nearest even: adding 0x7fff plus the lowest bit that stays carries into the upper half exactly when rounding goes up.
TRIREME_INLINE Halves to_bfloat16_bits(Floats x) {
  Words bits = (Words)x;
  Words rounded = bits + 0x7fff + ((bits >> 16) & 1);
  Words quiet_nan = bits | 0x400000;
  return truncate((x != x ? quiet_nan : rounded) >> 16);
}

TRIREME_INLINE Floats load(const bfloat16* from) {
  Halves x;
  __builtin_memcpy(&x, from, sizeof x);
  return from_bfloat16(x);
}
TRIREME_INLINE void store(bfloat16* to, Floats x) {
  Halves half = to_bfloat16_bits(x);
  __builtin_memcpy(to, &half, sizeof half);
}
TRIREME_INLINE Floats load_first(const bfloat16* from, int n) {
  Halves x = {};
  __builtin_memcpy(&x, from, n * sizeof(bfloat16));
  return from_bfloat16(x);
}
TRIREME_INLINE void store_first(bfloat16* to, Floats x, int n) {
  Halves half = to_bfloat16_bits(x);
  __builtin_memcpy(to, &half, n * sizeof(bfloat16));
}

// kLanes elements, or the n that are left.
template <class T>
TRIREME_INLINE Floats load_up_to(const T* from, int64_t n) {
  return n >= kLanes ? load(from) : load_first(from, static_cast<int>(n));
}
template <class T>
TRIREME_INLINE void store_up_to(T* to, Floats x, int64_t n) {
  if (n >= kLanes)
    store(to, x);
  else
    store_first(to, x, static_cast<int>(n));
}

// The first n elements of x, those of y in the lanes after them.
TRIREME_INLINE Floats first_of(Floats x, int64_t n, Floats y) {
  Ints lane;
  for (int i = 0; i < kLanes; ++i) lane[i] = i;
  return lane < static_cast<int>(n < kLanes ? n : kLanes) ? x : y;
}
TRIREME_INLINE Floats zero_from(Floats x, int64_t n) { return first_of(x, n, Floats{}); }

// Bits of 16, as they are.
TRIREME_INLINE Halves load_halves(const uint16_t* from, int64_t n) {
  Halves x = {};
  if (n >= kLanes)
    __builtin_memcpy(&x, from, sizeof x);
  else
    __builtin_memcpy(&x, from, n * sizeof(uint16_t));
  return x;
}
TRIREME_INLINE void store_halves(uint16_t* to, Halves x, int64_t n) {
  if (n >= kLanes)
    __builtin_memcpy(to, &x, sizeof x);
  else
    __builtin_memcpy(to, &x, n * sizeof(uint16_t));
}

// The two halves of a float: its upper one is the float truncated to bfloat16. NaN stays NaN there too.
TRIREME_INLINE Words quiet_bits(Floats x) { return x != x ? (Words)x | 0x400000 : (Words)x; }
TRIREME_INLINE Halves upper_half(Words bits) { return truncate(bits >> 16); }
TRIREME_INLINE Halves lower_half(Words bits) { return truncate(bits); }
TRIREME_INLINE Floats join_halves(Halves upper, Halves lower) { return (Floats)(zero_extend(upper) << 16 | zero_extend(lower)); }

// e^x = 2^n e^r with n the integer nearest to x / ln 2, so |r| <= ln 2 / 2, where a polynomial of degree 6 (Cephes' expf)
// errs by less than 2^-24. Below -87.7 it is 0, from 88.4 on infinity. NaN stays NaN: of two, max and min return the second
// where one is.
TRIREME_INLINE Floats exp(Floats x) {
  constexpr float kLog2E = 1.44269504f, kLn2High = 0.693359375f, kLn2Low = -2.12194440e-4f;
  x = min(broadcast(89.0f), max(broadcast(-88.0f), x));
  Floats n = round(x * kLog2E);
  Floats r = fma(n, broadcast(-kLn2Low), fma(n, broadcast(-kLn2High), x));
  Floats p = broadcast(1.9875691500e-4f);
  p = fma(p, r, broadcast(1.3981999507e-3f));
  p = fma(p, r, broadcast(8.3334519073e-3f));
  p = fma(p, r, broadcast(4.1665795894e-2f));
  p = fma(p, r, broadcast(1.6666665459e-1f));
  p = fma(p, r, broadcast(5.0000001201e-1f));
  return times_power_of_two(fma(p, r * r, r + 1.0f), n);
}
