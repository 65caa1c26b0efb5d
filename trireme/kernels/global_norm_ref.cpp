// The sum of squares as a plain loop.
#include "trireme/kernels/global_norm.h"

namespace trireme::kernels {

double sum_of_squares_ref(std::span<const ConstTensor> tensors) {
  double sum = 0;
  for (const ConstTensor& tensor : tensors)
    for (int64_t i = 0; i < tensor.count; ++i) {
      double x = tensor.fp32 ? tensor.fp32[i] : to_float(tensor.bf16[i]);
      sum += x * x;
    }
  return sum;
}

}  // namespace trireme::kernels
