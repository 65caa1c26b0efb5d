// bf16, plain and split, as tensors: see trireme/kernels/bf16.h. The lower halves are bits, in a tensor of dtype int16.
// Results have the shape of what they are made from, and its strides where those leave no gaps.
#pragma once

#include <ATen/core/Tensor.h>

#include <tuple>

namespace trireme::torch_ext {

#pragma GCC visibility push(default)

// float32 -> bfloat16, rounded to nearest even.
at::Tensor round_bf16(const at::Tensor& weights);
// bfloat16 -> float32.
at::Tensor widen_bf16(const at::Tensor& weights);
// float32 -> (bfloat16, int16).
std::tuple<at::Tensor, at::Tensor> split_bf16(const at::Tensor& weights);
// The float32 tensor whose halves these are.
at::Tensor join_bf16(const at::Tensor& upper, const at::Tensor& lower);

#pragma GCC visibility pop

}  // namespace trireme::torch_ext
