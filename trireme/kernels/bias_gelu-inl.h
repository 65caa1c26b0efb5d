// GELU and its derivative, per ISA level. bias is there.

TRIREME_INLINE Floats magnitude(Floats x) { return (Floats)((Words)x & 0x7fffffffu); }

// 2^y for y <= 0, and 0 below -125; NaN stays NaN. 2^n 2^f with n the nearest integer: a polynomial of degree 6 gives 2^f
// within 2e-9 of itself, and n goes straight into its exponent.
TRIREME_INLINE Floats power_of_two_below_1(Floats y) {
  Floats n = round(y), f = y - n;
  Floats p = broadcast(1.535336201e-04f);
  p = fma(p, f, broadcast(1.339887446e-03f));
  p = fma(p, f, broadcast(9.618437358e-03f));
  p = fma(p, f, broadcast(5.550332471e-02f));
  p = fma(p, f, broadcast(2.402264791e-01f));
  p = fma(p, f, broadcast(6.931472029e-01f));
  p = fma(p, f, broadcast(1.0f));
  Words bits = (Words)p + ((Words)__builtin_convertvector(n, Ints) << 23);
  return y < -125.0f ? Floats{} : (Floats)bits;
}

// Phi(-a) for a >= 0, the normal distribution's tail, as 2^(a R(a)) / 2. R(a) = log2(2 Phi(-a)) / a is smooth: a polynomial
// of degree 9 gives Phi(-a) within 6.4e-9, and within 6.5e-7 of itself up to a = 5.5 (coefficients by reweighted least
// squares there, towards the least maximum of |error of R| * a * (Phi(-a) + 0.01)). Beyond, where Phi is below 1.9e-8, a
// R(a) goes on falling, like log2(Phi) until 9, then faster. No division, no branch.
TRIREME_INLINE Floats normal_tail(Floats a) {
  Floats r = broadcast(-2.733295888e-08f);
  r = fma(r, a, broadcast(8.139820115e-07f));
  r = fma(r, a, broadcast(-1.042652733e-05f));
  r = fma(r, a, broadcast(7.301575301e-05f));
  r = fma(r, a, broadcast(-2.670553890e-04f));
  r = fma(r, a, broadcast(-2.712105503e-05f));
  r = fma(r, a, broadcast(6.980344938e-03f));
  r = fma(r, a, broadcast(-5.246340376e-02f));
  r = fma(r, a, broadcast(-4.592139991e-01f));
  r = fma(r, a, broadcast(-1.151104887e+00f));
  return power_of_two_below_1(a * r) * 0.5f;
}

TRIREME_INLINE Floats normal_distribution(Floats x) {
  Floats tail = normal_tail(magnitude(x));
  return x < 0.0f ? tail : 1.0f - tail;
}

// The tanh form: (1 + tanh(u)) / 2 = 1 / (1 + exp(-2u)) with 2u = sqrt(8 / pi) (x + 0.044715 x^3). This is log2 of exp(-2u),
// for x >= 0.
constexpr float kTanhLinear = -2.302208198f, kTanhCubic = -0.1029432396f;  // -sqrt(8 / pi) log2(e), and times 0.044715
TRIREME_INLINE Floats tanh_exponent(Floats a) { return a * fma(a * a, broadcast(kTanhCubic), broadcast(kTanhLinear)); }

struct GeluAt {
  Floats value, derivative;
};

// Infinity times 0 must not occur in a derivative: beyond 12 it is its limit all the same. NaN stays NaN.
TRIREME_INLINE Floats within_12(Floats x) { return max(broadcast(-12.0f), min(broadcast(12.0f), x)); }

template <Gelu form>
TRIREME_INLINE GeluAt gelu_at(Floats x) {
  const Floats near = within_12(x);
  if constexpr (form == Gelu::erf) {
    constexpr float kHalfLog2E = 0.7213475204f, kOneOverSqrtTwoPi = 0.3989422804f;
    const Floats phi = normal_distribution(x);
    return {x * phi, fma(near * kOneOverSqrtTwoPi, power_of_two_below_1(near * near * -kHalfLog2E), phi)};
  }
  // With e = exp(-2u(|x|)), s(x) = 1 / (1 + exp(-2u(x))) is 1 / (1 + e) for positive x and e / (1 + e) for negative x: nothing overflows, nothing cancels.
  // The derivative of x s is s + x s (1 - s) 2u', and s (1 - s) = e / (1 + e)^2 for either sign.
  constexpr float kLinear = 1.5957691216f, kCubic = 3 * 0.0713548163f;  // of 2u'
  const Floats e = power_of_two_below_1(tanh_exponent(magnitude(x)));
  const Floats inverse = 1.0f / (e + 1.0f), other = e * inverse;
  const Floats slope = near * fma(near * near, broadcast(kCubic), broadcast(kLinear));
  return {x * (x < 0.0f ? e : broadcast(1.0f)) / (e + 1.0f), fma(slope, other * inverse, x < 0.0f ? other : inverse)};
}

template <Gelu form, class T>
void bias_gelu_rows_as(const BiasGeluForward<T>& call, const float* bias, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    const T* x = call.x + row * call.H;
    T* y = call.y + row * call.H;
    int64_t i = 0;
    for (; i + kLanes <= call.H; i += kLanes) store(y + i, gelu_at<form>(load(x + i) + load(bias + i)).value);
    if (int left = static_cast<int>(call.H - i); left > 0)
      store_first(y + i, gelu_at<form>(load_first(x + i, left) + load_first(bias + i, left)).value, left);
  }
}

// dbias is a partial sum of ColumnSums: whole vectors may be read and written there.
template <Gelu form, class T>
void bias_gelu_backward_rows_as(const BiasGeluBackward<T>& call, const float* bias, int64_t begin, int64_t end,
                                float* dbias) {
  for (int64_t row = begin; row < end; ++row) {
    const T *x = call.x + row * call.H, *dy = call.dy + row * call.H;
    T *dx = call.dx + row * call.H, *y = call.y ? call.y + row * call.H : nullptr;
    int64_t i = 0;
    for (; i + kLanes <= call.H; i += kLanes) {
      const GeluAt gelu = gelu_at<form>(load(x + i) + load(bias + i));
      const Floats gradient = load(dy + i) * gelu.derivative;
      store(dbias + i, load(dbias + i) + gradient);
      store(dx + i, gradient);
      if (y) store(y + i, gelu.value);
    }
    if (int left = static_cast<int>(call.H - i); left > 0) {
      const GeluAt gelu = gelu_at<form>(load_first(x + i, left) + load_first(bias + i, left));
      const Floats gradient = load_first(dy + i, left) * gelu.derivative;
      store(dbias + i, load(dbias + i) + gradient);
      store_first(dx + i, gradient, left);
      if (y) store_first(y + i, gelu.value, left);
    }
  }
}

template <class T>
void bias_gelu_rows(const BiasGeluForward<T>& call, const float* bias, int64_t begin, int64_t end) {
  if (call.form == Gelu::erf)
    bias_gelu_rows_as<Gelu::erf>(call, bias, begin, end);
  else
    bias_gelu_rows_as<Gelu::tanh>(call, bias, begin, end);
}
template <class T>
void bias_gelu_backward_rows(const BiasGeluBackward<T>& call, const float* bias, int64_t begin, int64_t end, float* dbias) {
  if (call.form == Gelu::erf)
    bias_gelu_backward_rows_as<Gelu::erf>(call, bias, begin, end, dbias);
  else
    bias_gelu_backward_rows_as<Gelu::tanh>(call, bias, begin, end, dbias);
}
