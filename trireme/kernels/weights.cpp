#include "trireme/kernels/weights.h"

#include "trireme/base/error.h"

namespace trireme::kernels {

void check_formats(const char* optimizer, const Weights& weights, const Gradient& gradient) {
  if (!weights.fp32 && !weights.bf16) throw InvalidArgument(str(optimizer, ": a parameter has no weights"));
  if (weights.lower && (weights.fp32 || !weights.bf16))
    throw InvalidArgument(str(optimizer, ": lower halves go with bf16 weights and without fp32 ones"));
  if (!gradient.fp32 == !gradient.bf16) throw InvalidArgument(str(optimizer, ": a gradient is either fp32 or bf16"));
}

}  // namespace trireme::kernels
