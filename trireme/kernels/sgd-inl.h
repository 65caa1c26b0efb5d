// The rule of SGD, per ISA level.
#include "trireme/kernels/weights-inl.h"

struct SgdRule {
  float* momentum_buffer;  // null without momentum
  bool first;
  SgdCoefficients c;

  TRIREME_INLINE Floats operator()(Floats w, Floats g, int64_t i, int64_t n) const {
    g *= c.gradient_scale;
    if (c.weight_decay != 0) g = fma(broadcast(c.weight_decay), w, g);
    if (momentum_buffer) {
      Floats b = g;
      if (!first) b = fma(broadcast(c.momentum), load_up_to(momentum_buffer + i, n), g * c.one_minus_dampening);
      store_up_to(momentum_buffer + i, b, n);
      g = c.nesterov ? fma(broadcast(c.momentum), b, g) : b;
    }
    return fma(broadcast(-c.lr), g, w);
  }
};

template <class F>
void sgd_part(const SgdTensor& tensor, const SgdCoefficients& c, int64_t begin, int64_t end) {
  float* buffer = c.momentum == 0 ? nullptr : tensor.momentum_buffer;
  update_elements<F>(tensor.weights, tensor.gradient, begin, end, SgdRule{buffer, tensor.first, c});
}
