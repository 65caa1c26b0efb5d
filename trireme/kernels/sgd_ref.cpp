// SGD as torch.optim writes it, one element at a time, in double between what is stored.
#include "trireme/kernels/sgd.h"

namespace trireme::kernels {

void sgd_ref(std::span<const SgdTensor> tensors, const SgdOptions& options) {
  for (const SgdTensor& tensor : tensors)
    for (int64_t i = 0; i < tensor.count; ++i) {
      double w = load_ref(tensor.weights, i), g = load_ref(tensor.gradient, i) * options.gradient_scale;
      if (options.maximize) g = -g;
      if (options.weight_decay != 0) g += options.weight_decay * w;
      if (options.momentum != 0) {
        double b = tensor.first ? g : options.momentum * tensor.momentum_buffer[i] + (1 - options.dampening) * g;
        tensor.momentum_buffer[i] = static_cast<float>(b);
        g = options.nesterov ? g + options.momentum * b : b;
      }
      store_ref(tensor.weights, i, static_cast<float>(w - options.lr * g));
    }
}

}  // namespace trireme::kernels
