#include "trireme/kernels/adam.h"

#include <immintrin.h>

#include <cmath>

#include "trireme/base/error.h"
#include "trireme/cpu/isa.h"
#include "trireme/cpu/target_region.h"
#include "trireme/cpu/vector_types.h"
#include "trireme/kernels/multi_tensor.h"

namespace trireme::kernels {

namespace {

// What the elements of one tensor have in common; computed in double, used in fp32.
struct AdamCoefficients {
  float gradient_scale, l2, shrink, one_minus_beta1, beta2, one_minus_beta2, inverse_sqrt_bias2, eps, step_size;
};

AdamCoefficients coefficients_of(const AdamOptions& options, double step) {
  double bias1 = 1 - std::pow(options.beta1, step), bias2 = 1 - std::pow(options.beta2, step);
  AdamCoefficients c;
  c.gradient_scale = static_cast<float>(options.maximize ? -options.gradient_scale : options.gradient_scale);
  c.l2 = static_cast<float>(options.decoupled ? 0 : options.weight_decay);
  c.shrink = static_cast<float>(options.decoupled ? 1 - options.lr * options.weight_decay : 1);
  c.one_minus_beta1 = static_cast<float>(1 - options.beta1);
  c.beta2 = static_cast<float>(options.beta2);
  c.one_minus_beta2 = static_cast<float>(1 - options.beta2);
  c.inverse_sqrt_bias2 = static_cast<float>(1 / std::sqrt(bias2));
  c.eps = static_cast<float>(options.eps);
  c.step_size = static_cast<float>(options.lr / bias1);
  return c;
}

}  // namespace

#define TRIREME_BODY "trireme/kernels/adam-inl.h"
#include "trireme/kernels/foreach_isa.h"

namespace {

using Part = void (*)(const AdamTensor&, const AdamCoefficients&, int64_t, int64_t);

struct Prepared {
  Part part;
  AdamCoefficients coefficients;
};

Prepared prepare(const AdamTensor& tensor, const AdamOptions& options) {
  if (tensor.count == 0) return {};
  check_formats("adam", tensor.weights, tensor.gradient);
  if (!tensor.exp_avg || !tensor.exp_avg_sq) throw InvalidArgument("adam: a parameter has no exp_avg or no exp_avg_sq");
  if (!(tensor.step >= 1)) throw InvalidArgument(str("adam: step is ", tensor.step, "; the first one is 1"));
  Part part =
      with_format(tensor.weights, tensor.gradient, []<class F>(F) -> Part { return TRIREME_AT_LEVEL(adam_part<F>); });
  return {part, coefficients_of(options, tensor.step)};
}

}  // namespace

void adam(std::span<const AdamTensor> tensors, const AdamOptions& options) {
  std::vector<Prepared> prepared;
  for (const AdamTensor& tensor : tensors) prepared.push_back(prepare(tensor, options));
  for_each_chunk(chunks_of(tensors), [&](const Chunk& chunk, size_t) {
    const Prepared& with = prepared[chunk.tensor];
    with.part(tensors[chunk.tensor], with.coefficients, chunk.begin, chunk.end);
  });
}

}  // namespace trireme::kernels
