#include "trireme/kernels/lamb.h"

#include <immintrin.h>

#include <cmath>

#include "trireme/base/error.h"
#include "trireme/cpu/isa.h"
#include "trireme/cpu/target_region.h"
#include "trireme/cpu/vector_types.h"
#include "trireme/kernels/multi_tensor.h"

namespace trireme::kernels {

namespace {

struct LambCoefficients {
  float gradient_scale, weight_decay, one_minus_beta1, beta2, one_minus_beta2, inverse_bias1, inverse_sqrt_bias2, eps;
};

// Sums of squares.
struct LambNorms {
  double weights = 0, direction = 0;
};

LambCoefficients coefficients_of(const LambOptions& options, double step) {
  LambCoefficients c;
  c.gradient_scale = static_cast<float>(options.maximize ? -options.gradient_scale : options.gradient_scale);
  c.weight_decay = static_cast<float>(options.weight_decay);
  c.one_minus_beta1 = static_cast<float>(1 - options.beta1);
  c.beta2 = static_cast<float>(options.beta2);
  c.one_minus_beta2 = static_cast<float>(1 - options.beta2);
  c.inverse_bias1 = static_cast<float>(1 / (1 - std::pow(options.beta1, step)));
  c.inverse_sqrt_bias2 = static_cast<float>(1 / std::sqrt(1 - std::pow(options.beta2, step)));
  c.eps = static_cast<float>(options.eps);
  return c;
}

}  // namespace

#define TRIREME_BODY "trireme/kernels/lamb-inl.h"
#include "trireme/kernels/foreach_isa.h"

namespace {

using Moments = LambNorms (*)(const LambTensor&, const LambCoefficients&, int64_t, int64_t);
using Step = void (*)(const LambTensor&, const LambCoefficients&, float, int64_t, int64_t);

struct Prepared {
  Moments moments;
  Step step;
  LambCoefficients coefficients;
};

Prepared prepare(const LambTensor& tensor, const LambOptions& options) {
  if (tensor.count == 0) return {};
  check_formats("lamb", tensor.weights, tensor.gradient);
  if (!tensor.exp_avg || !tensor.exp_avg_sq) throw InvalidArgument("lamb: a parameter has no exp_avg or no exp_avg_sq");
  if (!(tensor.step >= 1)) throw InvalidArgument(str("lamb: step is ", tensor.step, "; the first one is 1"));
  Moments moments =
      with_format(tensor.weights, tensor.gradient, []<class F>(F) -> Moments { return TRIREME_AT_LEVEL(lamb_moments<F>); });
  Step step =
      with_format(tensor.weights, tensor.gradient, []<class F>(F) -> Step { return TRIREME_AT_LEVEL(lamb_weights<F>); });
  return {moments, step, coefficients_of(options, tensor.step)};
}

float step_size_of(const LambNorms& norms, double lr) {
  bool both = norms.weights > 0 && norms.direction > 0;
  return static_cast<float>(both ? lr * std::sqrt(norms.weights / norms.direction) : lr);
}

}  // namespace

void lamb(std::span<const LambTensor> tensors, const LambOptions& options) {
  std::vector<Prepared> prepared;
  for (const LambTensor& tensor : tensors) prepared.push_back(prepare(tensor, options));
  std::vector<Chunk> chunks = chunks_of(tensors);

  std::vector<LambNorms> of_chunks(chunks.size());
  for_each_chunk(chunks, [&](const Chunk& chunk, size_t i) {
    const Prepared& with = prepared[chunk.tensor];
    of_chunks[i] = with.moments(tensors[chunk.tensor], with.coefficients, chunk.begin, chunk.end);
  });
  std::vector<LambNorms> norms(tensors.size());
  for (size_t i = 0; i < chunks.size(); ++i) {
    norms[chunks[i].tensor].weights += of_chunks[i].weights;
    norms[chunks[i].tensor].direction += of_chunks[i].direction;
  }
  for_each_chunk(chunks, [&](const Chunk& chunk, size_t) {
    const Prepared& with = prepared[chunk.tensor];
    with.step(tensors[chunk.tensor], with.coefficients, step_size_of(norms[chunk.tensor], options.lr), chunk.begin,
              chunk.end);
  });
}

}  // namespace trireme::kernels
