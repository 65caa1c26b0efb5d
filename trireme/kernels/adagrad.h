// A step of Adagrad on many tensors, in one pass over memory, as torch.optim.Adagrad has it.
#pragma once

#include <span>

#include "trireme/kernels/weights.h"

namespace trireme::kernels {

struct AdagradOptions {
  double lr = 1e-2, lr_decay = 0;
  double eps = 1e-10;
  double weight_decay = 0;
  bool maximize = false;
  double gradient_scale = 1;
};

struct AdagradTensor {
  Weights weights;
  Gradient gradient;
  float* sum = nullptr;
  double step = 1;  // the number of this step, from 1 on
  int64_t count = 0;
};

// Tensors must not overlap. InvalidArgument, before anything is written, where pointers are missing.
void adagrad(std::span<const AdagradTensor> tensors, const AdagradOptions& options);
void adagrad_ref(std::span<const AdagradTensor> tensors, const AdagradOptions& options);

}  // namespace trireme::kernels
