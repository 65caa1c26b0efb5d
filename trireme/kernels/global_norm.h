// The sum of squares of many tensors together, for clipping by the global norm.
//
// The same bits on every run, for any number of threads and at every ISA level: squares of floats are exact in double,
// chunks have a fixed size, 32 partial sums in a chunk take elements in turn, and partial sums are added in order.
#pragma once

#include <cstdint>
#include <span>

#include "trireme/base/float16.h"

namespace trireme::kernels {

// One of the pointers; neither if count is 0.
struct ConstTensor {
  const float* fp32 = nullptr;
  const bfloat16* bf16 = nullptr;
  int64_t count = 0;
};

// In double: the squares of finite floats do not overflow. NaN or infinity in any element is NaN or infinity in the sum.
double sum_of_squares(std::span<const ConstTensor> tensors);
double sum_of_squares_ref(std::span<const ConstTensor> tensors);

double global_norm(std::span<const ConstTensor> tensors);

// What gradients are multiplied by so that their norm is at most max_norm, as torch.nn.utils.clip_grad_norm_ has it:
// min(1, max_norm / (norm + 1e-6)); NaN for a norm that is NaN, 0 for one that is infinite.
double clip_coefficient(double norm, double max_norm);

}  // namespace trireme::kernels
