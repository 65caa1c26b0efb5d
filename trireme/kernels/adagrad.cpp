#include "trireme/kernels/adagrad.h"

#include <immintrin.h>

#include "trireme/base/error.h"
#include "trireme/cpu/isa.h"
#include "trireme/cpu/target_region.h"
#include "trireme/cpu/vector_types.h"
#include "trireme/kernels/multi_tensor.h"

namespace trireme::kernels {

namespace {

struct AdagradCoefficients {
  float gradient_scale, lr, weight_decay, eps;
};

}  // namespace

#define TRIREME_BODY "trireme/kernels/adagrad-inl.h"
#include "trireme/kernels/foreach_isa.h"

namespace {

using Part = void (*)(const AdagradTensor&, const AdagradCoefficients&, int64_t, int64_t);

struct Prepared {
  Part part;
  AdagradCoefficients coefficients;
};

Prepared prepare(const AdagradTensor& tensor, const AdagradOptions& options) {
  if (tensor.count == 0) return {};
  check_formats("adagrad", tensor.weights, tensor.gradient);
  if (!tensor.sum) throw InvalidArgument("adagrad: a parameter has no sum");
  if (!(tensor.step >= 1)) throw InvalidArgument(str("adagrad: step is ", tensor.step, "; the first one is 1"));
  Part part =
      with_format(tensor.weights, tensor.gradient, []<class F>(F) -> Part { return TRIREME_AT_LEVEL(adagrad_part<F>); });
  AdagradCoefficients c;
  c.gradient_scale = static_cast<float>(options.maximize ? -options.gradient_scale : options.gradient_scale);
  c.lr = static_cast<float>(options.lr / (1 + (tensor.step - 1) * options.lr_decay));
  c.weight_decay = static_cast<float>(options.weight_decay);
  c.eps = static_cast<float>(options.eps);
  return {part, c};
}

}  // namespace

void adagrad(std::span<const AdagradTensor> tensors, const AdagradOptions& options) {
  std::vector<Prepared> prepared;
  for (const AdagradTensor& tensor : tensors) prepared.push_back(prepare(tensor, options));
  for_each_chunk(chunks_of(tensors), [&](const Chunk& chunk, size_t) {
    const Prepared& with = prepared[chunk.tensor];
    with.part(tensors[chunk.tensor], with.coefficients, chunk.begin, chunk.end);
  });
}

}  // namespace trireme::kernels
