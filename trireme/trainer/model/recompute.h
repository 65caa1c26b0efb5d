// Gradient checkpointing: a function of one tensor that keeps nothing but that tensor for its backward pass.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

namespace trireme::trainer {

// compute(x), computed again in the backward pass with the random numbers of the first time. The gradients of what else
// `compute` uses (parameters) are accumulated where they are.
at::Tensor recompute(const std::function<at::Tensor(const at::Tensor&)>& compute, const at::Tensor& x);

}  // namespace trireme::trainer
