// The two passes of LAMB, per ISA level.
#include "trireme/kernels/sum_of_squares-inl.h"
#include "trireme/kernels/weights-inl.h"

TRIREME_INLINE Floats lamb_direction(const LambCoefficients& c, Floats w, Floats m, Floats v) {
  Floats denominator = fma(sqrt(v), broadcast(c.inverse_sqrt_bias2), broadcast(c.eps));
  return fma(broadcast(c.weight_decay), w, m * c.inverse_bias1 / denominator);
}

// n elements from i on, which are those at `place` of every kSums.
template <class F>
TRIREME_INLINE void lamb_moments_at(const LambTensor& tensor, const LambCoefficients& c, int64_t i, int64_t n, int place,
                                    SumOfSquares& of_weights, SumOfSquares& of_direction) {
  Floats w = load_weights<F::storage>(tensor.weights, i, n);
  Floats g = load_gradient<typename F::Grad>(tensor.gradient, i, n) * c.gradient_scale;
  Floats m = load_up_to(tensor.exp_avg + i, n), v = load_up_to(tensor.exp_avg_sq + i, n);
  m = fma(broadcast(c.one_minus_beta1), g - m, m);
  v = fma(g * c.one_minus_beta2, g, v * c.beta2);
  store_up_to(tensor.exp_avg + i, m, n);
  store_up_to(tensor.exp_avg_sq + i, v, n);
  Floats r = lamb_direction(c, w, m, v);
  if (n < kLanes) {  // behind the end it is 0 / (0 + eps), and eps may be 0
    float first[kLanes] = {};
    store_first(first, r, static_cast<int>(n));
    r = load(first);
  }
  of_weights.add(place, w);
  of_direction.add(place, r);
}

template <class F>
LambNorms lamb_moments(const LambTensor& tensor, const LambCoefficients& c, int64_t begin, int64_t end) {
  SumOfSquares of_weights, of_direction;
  int64_t i = begin;
  for (; i + kSums <= end; i += kSums)
#pragma GCC unroll 8
    for (int place = 0; place < kSums; place += kLanes)
      lamb_moments_at<F>(tensor, c, i + place, kLanes, place, of_weights, of_direction);
  for (int place = 0; i + place < end; place += kLanes)
    lamb_moments_at<F>(tensor, c, i + place, end - i - place < kLanes ? end - i - place : kLanes, place, of_weights,
                       of_direction);
  return {of_weights.total(), of_direction.total()};
}

struct LambRule {
  const LambTensor& tensor;
  LambCoefficients c;
  float step_size;

  TRIREME_INLINE Floats operator()(Floats w, Floats, int64_t i, int64_t n) const {
    Floats m = load_up_to(tensor.exp_avg + i, n), v = load_up_to(tensor.exp_avg_sq + i, n);
    return fma(broadcast(-step_size), lamb_direction(c, w, m, v), w);
  }
};

template <class F>
void lamb_weights(const LambTensor& tensor, const LambCoefficients& c, float step_size, int64_t begin, int64_t end) {
  update_elements<F>(tensor.weights, tensor.gradient, begin, end, LambRule{tensor, c, step_size});
}
