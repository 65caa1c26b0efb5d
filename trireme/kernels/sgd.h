// A step of stochastic gradient descent on many tensors, in one pass over memory, as torch.optim.SGD has it.
#pragma once

#include <span>

#include "trireme/kernels/weights.h"

namespace trireme::kernels {

struct SgdOptions {
  double lr = 1e-3;
  double momentum = 0, dampening = 0;
  double weight_decay = 0;
  bool nesterov = false, maximize = false;
  double gradient_scale = 1;
};

struct SgdTensor {
  Weights weights;
  Gradient gradient;
  float* momentum_buffer = nullptr;  // unless momentum is 0
  bool first = false;                // the buffer has no value yet: it becomes the gradient, undampened
  int64_t count = 0;
};

// Tensors must not overlap. InvalidArgument, before anything is written, where pointers are missing.
void sgd(std::span<const SgdTensor> tensors, const SgdOptions& options);
void sgd_ref(std::span<const SgdTensor> tensors, const SgdOptions& options);

}  // namespace trireme::kernels
