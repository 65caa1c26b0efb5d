// Adam's rule, per ISA level. Per element of fp32 16 bytes are read and 12 written, and there is one square root and one
// division: on every CPU with AVX2 memory is the limit.
#include "trireme/kernels/weights-inl.h"

struct AdamRule {
  const AdamTensor& tensor;
  AdamCoefficients c;

  TRIREME_INLINE Floats operator()(Floats w, Floats g, int64_t i, int64_t n) const {
    g *= c.gradient_scale;
    if (c.l2 != 0) g = fma(broadcast(c.l2), w, g);
    Floats m = load_up_to(tensor.exp_avg + i, n), v = load_up_to(tensor.exp_avg_sq + i, n);
    m = fma(broadcast(c.one_minus_beta1), g - m, m);
    v = fma(g * c.one_minus_beta2, g, v * c.beta2);
    store_up_to(tensor.exp_avg + i, m, n);
    store_up_to(tensor.exp_avg_sq + i, v, n);
    if (tensor.max_exp_avg_sq) {
      v = max(load_up_to(tensor.max_exp_avg_sq + i, n), v);
      store_up_to(tensor.max_exp_avg_sq + i, v, n);
    }
    Floats denominator = fma(sqrt(v), broadcast(c.inverse_sqrt_bias2), broadcast(c.eps));
    return fma(broadcast(-c.step_size), m / denominator, w * c.shrink);
  }
};

template <class F>
void adam_part(const AdamTensor& tensor, const AdamCoefficients& coefficients, int64_t begin, int64_t end) {
  update_elements<F>(tensor.weights, tensor.gradient, begin, end, AdamRule{tensor, coefficients});
}
