// The formats of weights.h, one element at a time.
#include "trireme/kernels/bf16.h"
#include "trireme/kernels/weights.h"

namespace trireme::kernels {

float load_ref(const Weights& weights, int64_t i) {
  float x;
  switch (weights.storage()) {
    case Storage::fp32: return weights.fp32[i];
    case Storage::bf16: return to_float(weights.bf16[i]);
    case Storage::master:
      return to_bfloat16(weights.fp32[i]).bits == weights.bf16[i].bits ? weights.fp32[i] : to_float(weights.bf16[i]);
    default: join_ref(weights.bf16 + i, weights.lower + i, &x, 1); return x;
  }
}

void store_ref(const Weights& weights, int64_t i, float x) {
  if (weights.fp32) weights.fp32[i] = x;
  if (weights.lower)
    split_ref(&x, weights.bf16 + i, weights.lower + i, 1);
  else if (weights.bf16)
    weights.bf16[i] = to_bfloat16(x);
}

float load_ref(const Gradient& gradient, int64_t i) { return gradient.fp32 ? gradient.fp32[i] : to_float(gradient.bf16[i]); }

}  // namespace trireme::kernels
