#include "trireme/kernels/sgd.h"

#include <immintrin.h>

#include "trireme/base/error.h"
#include "trireme/cpu/isa.h"
#include "trireme/cpu/target_region.h"
#include "trireme/cpu/vector_types.h"
#include "trireme/kernels/multi_tensor.h"

namespace trireme::kernels {

namespace {

struct SgdCoefficients {
  float gradient_scale, lr, momentum, one_minus_dampening, weight_decay;
  bool nesterov;
};

}  // namespace

#define TRIREME_BODY "trireme/kernels/sgd-inl.h"
#include "trireme/kernels/foreach_isa.h"

namespace {

using Part = void (*)(const SgdTensor&, const SgdCoefficients&, int64_t, int64_t);

Part part_for(const SgdTensor& tensor, const SgdOptions& options) {
  if (tensor.count == 0) return nullptr;
  check_formats("sgd", tensor.weights, tensor.gradient);
  if (options.momentum != 0 && !tensor.momentum_buffer) throw InvalidArgument("sgd: a parameter has no momentum_buffer");
  return with_format(tensor.weights, tensor.gradient, []<class F>(F) -> Part { return TRIREME_AT_LEVEL(sgd_part<F>); });
}

}  // namespace

void sgd(std::span<const SgdTensor> tensors, const SgdOptions& options) {
  std::vector<Part> parts;
  for (const SgdTensor& tensor : tensors) parts.push_back(part_for(tensor, options));
  SgdCoefficients c;
  c.gradient_scale = static_cast<float>(options.maximize ? -options.gradient_scale : options.gradient_scale);
  c.lr = static_cast<float>(options.lr);
  c.momentum = static_cast<float>(options.momentum);
  c.one_minus_dampening = static_cast<float>(1 - options.dampening);
  c.weight_decay = static_cast<float>(options.weight_decay);
  c.nesterov = options.nesterov;
  for_each_chunk(chunks_of(tensors),
                 [&](const Chunk& chunk, size_t) { parts[chunk.tensor](tensors[chunk.tensor], c, chunk.begin, chunk.end); });
}

}  // namespace trireme::kernels
