// LayerNorm of one row, per ISA level: what every kernel with a LayerNorm in it is made of. A row is read two or three
// times, after the first time from the first-level cache (16 KiB for H = 4096 in fp32).

struct Moments {
  float mean, rstd;
};

// Two looks: the variance is a mean of squared deviations, not E[x^2] - mean^2, which loses all digits where the mean is
// large. Four accumulators cover the latency of an addition, 4 cycles, at one load a cycle.
template <class T>
TRIREME_INLINE Moments moments_of(const T* x, int64_t H, float eps) {
  constexpr int kStep = 4 * kLanes;
  Floats a = {}, b = {}, c = {}, d = {};
  int64_t i = 0;
  for (; i + kStep <= H; i += kStep) {
    a += load(x + i);
    b += load(x + i + kLanes);
    c += load(x + i + 2 * kLanes);
    d += load(x + i + 3 * kLanes);
  }
  for (; i < H; i += kLanes) a += load_up_to(x + i, H - i);
  float mean = sum((a + b) + (c + d)) / static_cast<float>(H);

  a = b = c = d = Floats{};
  for (i = 0; i + kStep <= H; i += kStep) {
    Floats p = load(x + i) - mean, q = load(x + i + kLanes) - mean;
    Floats r = load(x + i + 2 * kLanes) - mean, s = load(x + i + 3 * kLanes) - mean;
    a = fma(p, p, a);
    b = fma(q, q, b);
    c = fma(r, r, c);
    d = fma(s, s, d);
  }
  for (; i < H; i += kLanes) {
    Floats p = zero_from(load_up_to(x + i, H - i) - mean, H - i);
    a = fma(p, p, a);
  }
  float variance = sum((a + b) + (c + d)) / static_cast<float>(H);
  return {mean, 1 / __builtin_sqrtf(variance + eps)};
}

template <class From, class To>
TRIREME_INLINE void normalise_row(const From* x, Moments moments, const float* gamma, const float* beta, To* y, int64_t H) {
  int64_t i = 0;
  for (; i + kLanes <= H; i += kLanes)
    store(y + i, fma((load(x + i) - moments.mean) * moments.rstd, load(gamma + i), load(beta + i)));
  if (i < H) {
    int left = static_cast<int>(H - i);
    Floats normal = (load_first(x + i, left) - moments.mean) * moments.rstd;
    store_first(y + i, fma(normal, load_first(gamma + i, left), load_first(beta + i, left)), left);
  }
}

// With g = dy * gamma and n = (x - mean) * rstd:  dx = rstd * (g - mean(g) - n * mean(g * n)).
// dgamma and dbeta are partial sums of ColumnSums: whole vectors may be read and written there.
template <class Gradient, class X, class To>
TRIREME_INLINE void normalise_row_backward(const Gradient* dy, const X* x, Moments moments, const float* gamma, To* dx,
                                           float* dgamma, float* dbeta, int64_t H) {
  Floats sum_g = {}, sum_gn = {};
  for (int64_t i = 0; i < H; i += kLanes) {
    Floats gradient = load_up_to(dy + i, H - i);
    Floats normal = (load_up_to(x + i, H - i) - moments.mean) * moments.rstd;
    Floats g = gradient * load_up_to(gamma + i, H - i);
    store(dgamma + i, fma(gradient, normal, load(dgamma + i)));
    store(dbeta + i, load(dbeta + i) + gradient);
    sum_g += g;
    sum_gn = fma(g, normal, sum_gn);
  }
  float mean_g = sum(sum_g) / static_cast<float>(H), mean_gn = sum(sum_gn) / static_cast<float>(H);
  for (int64_t i = 0; i < H; i += kLanes) {
    Floats normal = (load_up_to(x + i, H - i) - moments.mean) * moments.rstd;
    Floats g = load_up_to(dy + i, H - i) * load_up_to(gamma + i, H - i);
    store_up_to(dx + i, (fma(normal, broadcast(-mean_gn), g) - mean_g) * moments.rstd, H - i);
  }
}
