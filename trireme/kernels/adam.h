// A step of Adam or AdamW on many tensors, in one pass over memory. The arithmetic is torch.optim's, in fp32: where its
// implementations round at other places, results differ by roundings.
#pragma once

#include <span>

#include "trireme/kernels/weights.h"

namespace trireme::kernels {

struct AdamOptions {
  double lr = 1e-3;
  double beta1 = 0.9, beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
  bool decoupled = false;  // AdamW: weights shrink by lr * weight_decay. Else weight_decay * w is added to the gradient
  bool maximize = false;
  double gradient_scale = 1;  // the gradient is multiplied by this first: clip_coefficient()
};

struct AdamTensor {
  Weights weights;
  Gradient gradient;
  float* exp_avg = nullptr;
  float* exp_avg_sq = nullptr;
  float* max_exp_avg_sq = nullptr;  // amsgrad where it is not null
  double step = 1;                  // the number of this step, from 1 on
  int64_t count = 0;
};

// Tensors must not overlap. InvalidArgument, before anything is written, where pointers are missing.
void adam(std::span<const AdamTensor> tensors, const AdamOptions& options);
void adam_ref(std::span<const AdamTensor> tensors, const AdamOptions& options);

}  // namespace trireme::kernels
