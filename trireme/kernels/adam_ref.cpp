// Adam and AdamW as the papers and torch.optim write them, one element at a time, in double between what is stored.
#include <algorithm>
#include <cmath>

#include "trireme/kernels/adam.h"

namespace trireme::kernels {

void adam_ref(std::span<const AdamTensor> tensors, const AdamOptions& options) {
  for (const AdamTensor& tensor : tensors) {
    double bias1 = 1 - std::pow(options.beta1, tensor.step), bias2 = 1 - std::pow(options.beta2, tensor.step);
    for (int64_t i = 0; i < tensor.count; ++i) {
      double w = load_ref(tensor.weights, i), g = load_ref(tensor.gradient, i) * options.gradient_scale;
      if (options.maximize) g = -g;
      if (options.decoupled)
        w *= 1 - options.lr * options.weight_decay;
      else if (options.weight_decay != 0)
        g += options.weight_decay * w;
      double m = options.beta1 * tensor.exp_avg[i] + (1 - options.beta1) * g;
      float v = static_cast<float>(options.beta2 * tensor.exp_avg_sq[i] + (1 - options.beta2) * g * g);
      tensor.exp_avg[i] = static_cast<float>(m);
      tensor.exp_avg_sq[i] = v;
      if (tensor.max_exp_avg_sq) {
        v = std::max(v, tensor.max_exp_avg_sq[i]);
        tensor.max_exp_avg_sq[i] = v;
      }
      double denominator = std::sqrt(double{v}) / std::sqrt(bias2) + options.eps;
      store_ref(tensor.weights, i, static_cast<float>(w - options.lr / bias1 * m / denominator));
    }
  }
}

}  // namespace trireme::kernels
