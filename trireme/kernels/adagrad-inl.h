// The rule of Adagrad, per ISA level.
#include "trireme/kernels/weights-inl.h"

struct AdagradRule {
  float* sum;
  AdagradCoefficients c;

  TRIREME_INLINE Floats operator()(Floats w, Floats g, int64_t i, int64_t n) const {
    g *= c.gradient_scale;
    if (c.weight_decay != 0) g = fma(broadcast(c.weight_decay), w, g);
    Floats s = fma(g, g, load_up_to(sum + i, n));
    store_up_to(sum + i, s, n);
    return fma(broadcast(-c.lr), g / (sqrt(s) + c.eps), w);
  }
};

template <class F>
void adagrad_part(const AdagradTensor& tensor, const AdagradCoefficients& c, int64_t begin, int64_t end) {
  update_elements<F>(tensor.weights, tensor.gradient, begin, end, AdagradRule{tensor.sum, c});
}
