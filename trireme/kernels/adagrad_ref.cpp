// Adagrad as torch.optim writes it, one element at a time, in double between what is stored.
#include <cmath>

#include "trireme/kernels/adagrad.h"

namespace trireme::kernels {

void adagrad_ref(std::span<const AdagradTensor> tensors, const AdagradOptions& options) {
  for (const AdagradTensor& tensor : tensors) {
    double lr = options.lr / (1 + (tensor.step - 1) * options.lr_decay);
    for (int64_t i = 0; i < tensor.count; ++i) {
      double w = load_ref(tensor.weights, i), g = load_ref(tensor.gradient, i) * options.gradient_scale;
      if (options.maximize) g = -g;
      if (options.weight_decay != 0) g += options.weight_decay * w;
      float sum = static_cast<float>(tensor.sum[i] + g * g);
      tensor.sum[i] = sum;
      store_ref(tensor.weights, i, static_cast<float>(w - lr * g / (std::sqrt(double{sum}) + options.eps)));
    }
  }
}

}  // namespace trireme::kernels
