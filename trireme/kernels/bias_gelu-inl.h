// GELU and its derivative, per ISA level. bias is there.

// Phi(-a) for a >= 0, the normal distribution's tail, as exp(-a R(a)) / 2. R(a) = -log(2 Phi(-a)) / a is smooth: a
// polynomial of degree 9 on [0, 5.5] gives Phi(-a) within 6.4e-9, and within 6.5e-7 of itself (coefficients by reweighted
// least squares, towards the least maximum of |error of R| * a * (Phi(-a) + 0.01)). No division, no branch. From 5.5 on,
// where Phi is below 1.9e-8, R follows its tangent.
TRIREME_INLINE Floats normal_tail(Floats a) {
  Floats t = min(broadcast(5.5f), a);
  Floats r = broadcast(1.894576338e-08f);
  r = fma(r, t, broadcast(-5.642093363e-07f));
  r = fma(r, t, broadcast(7.227118021e-06f));
  r = fma(r, t, broadcast(-5.061066334e-05f));
  r = fma(r, t, broadcast(1.851086900e-04f));
  r = fma(r, t, broadcast(1.879888283e-05f));
  r = fma(r, t, broadcast(-4.838406413e-03f));
  r = fma(r, t, broadcast(3.636486040e-02f));
  r = fma(r, t, broadcast(3.183028887e-01f));
  r = fma(r, t, broadcast(7.978851070e-01f));
  r = fma(a - t, broadcast(0.469f), r);
  return exp(-a * r) * 0.5f;
}

TRIREME_INLINE Floats normal_distribution(Floats x) {
  Floats tail = normal_tail(x < 0.0f ? -x : x);
  return x < 0.0f ? tail : 1.0f - tail;
}

// Where |x| is larger, the derivatives are their limits to the last bit, and x^3 cannot overflow. NaN stays NaN.
TRIREME_INLINE Floats within_12(Floats x) { return max(broadcast(-12.0f), min(broadcast(12.0f), x)); }

constexpr float kTanhCubic = 0.044715f, kTwoSqrtTwoOverPi = 1.5957691216f;

template <Gelu form>
TRIREME_INLINE Floats gelu(Floats x) {
  if constexpr (form == Gelu::erf) return x * normal_distribution(x);
  // (1 + tanh(u)) / 2 = 1 / (1 + exp(-2u)).
  Floats near = within_12(x);
  Floats minus_2u = near * fma(near * near, broadcast(-kTwoSqrtTwoOverPi * kTanhCubic), broadcast(-kTwoSqrtTwoOverPi));
  return x / (exp(minus_2u) + 1.0f);
}

template <Gelu form>
TRIREME_INLINE Floats gelu_derivative(Floats x) {
  x = within_12(x);
  if constexpr (form == Gelu::erf) {
    constexpr float kOneOverSqrtTwoPi = 0.3989422804f;
    return fma(x * kOneOverSqrtTwoPi, exp(x * x * -0.5f), normal_distribution(x));
  }
  // With e = exp(-2u) and s = 1 / (1 + e): s + x s (1 - s) 2u', and 1 - s is e s, which loses nothing where s is almost 1. e
  // is finite: 2u > -143 where x is -12, so it is cut at exp(80); s^2 e is then as good as 0.
  Floats square = x * x;
  Floats minus_2u = x * fma(square, broadcast(-kTwoSqrtTwoOverPi * kTanhCubic), broadcast(-kTwoSqrtTwoOverPi));
  Floats e = exp(min(broadcast(80.0f), minus_2u));
  Floats s = 1.0f / (e + 1.0f);
  Floats slope = fma(square, broadcast(3 * kTwoSqrtTwoOverPi * kTanhCubic), broadcast(kTwoSqrtTwoOverPi));
  return fma(x * slope, e * s * s, s);
}

template <Gelu form, class T>
void bias_gelu_rows_as(const BiasGeluForward<T>& call, const float* bias, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    const T* x = call.x + row * call.H;
    T* y = call.y + row * call.H;
    int64_t i = 0;
    for (; i + kLanes <= call.H; i += kLanes) store(y + i, gelu<form>(load(x + i) + load(bias + i)));
    if (int left = static_cast<int>(call.H - i); left > 0)
      store_first(y + i, gelu<form>(load_first(x + i, left) + load_first(bias + i, left)), left);
  }
}

// dbias is a partial sum of ColumnSums: whole vectors may be read and written there.
template <Gelu form, class T>
void bias_gelu_backward_rows_as(const BiasGeluBackward<T>& call, const float* bias, int64_t begin, int64_t end,
                                float* dbias) {
  for (int64_t row = begin; row < end; ++row) {
    const T *x = call.x + row * call.H, *dy = call.dy + row * call.H;
    T* dx = call.dx + row * call.H;
    int64_t i = 0;
    for (; i + kLanes <= call.H; i += kLanes) {
      Floats gradient = load(dy + i) * gelu_derivative<form>(load(x + i) + load(bias + i));
      store(dbias + i, load(dbias + i) + gradient);
      store(dx + i, gradient);
    }
    if (int left = static_cast<int>(call.H - i); left > 0) {
      Floats gradient =
          load_first(dy + i, left) * gelu_derivative<form>(load_first(x + i, left) + load_first(bias + i, left));
      store(dbias + i, load(dbias + i) + gradient);
      store_first(dx + i, gradient, left);
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
