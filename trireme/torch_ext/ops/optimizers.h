// A step of an optimizer on lists of tensors, in place, and the norm of gradients. Usable from C++ without Python; the
// operators torch.ops.trireme.adamw_ and so on are these functions. See docs/optim.md.
//
// Tensor i of every list belongs to parameter i. Parameters are float32 or bfloat16 and leave no gaps in memory; gradients
// are float32 or bfloat16, and are copied where they lie otherwise than their parameter; state is float32 and lies as its
// parameter. Masters are an empty list, or one tensor for each parameter, which then are all bfloat16: float32, a master
// copy, or int16, the lower halves of split bf16 (bf16.h). `steps` are tensors of one element that count steps; they are
// raised by one.
//
// A wrong argument throws c10::Error before anything is changed. options.gradient_scale is what gradients are multiplied by:
// a clip coefficient. Gradients themselves stay as they are.
#pragma once

#include <ATen/core/Tensor.h>

#include "trireme/kernels/adagrad.h"
#include "trireme/kernels/adam.h"
#include "trireme/kernels/lamb.h"
#include "trireme/kernels/sgd.h"

namespace trireme::torch_ext {

#pragma GCC visibility push(default)

// Adam, or AdamW with options.decoupled. max_exp_avg_sqs: empty, or amsgrad.
void adam_(at::TensorList params, at::TensorList grads, at::TensorList exp_avgs, at::TensorList exp_avg_sqs,
           at::TensorList max_exp_avg_sqs, at::TensorList steps, at::TensorList masters,
           const kernels::AdamOptions& options);

// momentum_buffers: empty without momentum. first[i]: buffer i has no value yet.
void sgd_(at::TensorList params, at::TensorList grads, at::TensorList momentum_buffers, const std::vector<bool>& first,
          at::TensorList masters, const kernels::SgdOptions& options);

void adagrad_(at::TensorList params, at::TensorList grads, at::TensorList sums, at::TensorList steps, at::TensorList masters,
              const kernels::AdagradOptions& options);

void lamb_(at::TensorList params, at::TensorList grads, at::TensorList exp_avgs, at::TensorList exp_avg_sqs,
           at::TensorList steps, at::TensorList masters, const kernels::LambOptions& options);

// Of all elements of all tensors, float32 or bfloat16: the same bits for any number of threads.
double global_norm(at::TensorList tensors);
// For gradient_scale: see kernels/global_norm.h.
double clip_coefficient(double norm, double max_norm);

#pragma GCC visibility pop

}  // namespace trireme::torch_ext
