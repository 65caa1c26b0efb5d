// LAMB as its paper writes it, one tensor and one element at a time, in double between what is stored.
#include <cmath>
#include <vector>

#include "trireme/kernels/lamb.h"

namespace trireme::kernels {

void lamb_ref(std::span<const LambTensor> tensors, const LambOptions& options) {
  for (const LambTensor& tensor : tensors) {
    double bias1 = 1 - std::pow(options.beta1, tensor.step), bias2 = 1 - std::pow(options.beta2, tensor.step);
    double of_weights = 0, of_direction = 0;
    std::vector<double> direction(tensor.count);
    for (int64_t i = 0; i < tensor.count; ++i) {
      double w = load_ref(tensor.weights, i), g = load_ref(tensor.gradient, i) * options.gradient_scale;
      if (options.maximize) g = -g;
      double m = options.beta1 * tensor.exp_avg[i] + (1 - options.beta1) * g;
      float v = static_cast<float>(options.beta2 * tensor.exp_avg_sq[i] + (1 - options.beta2) * g * g);
      tensor.exp_avg[i] = static_cast<float>(m);
      tensor.exp_avg_sq[i] = v;
      direction[i] = m / bias1 / (std::sqrt(v / bias2) + options.eps) + options.weight_decay * w;
      of_weights += w * w;
      of_direction += direction[i] * direction[i];
    }
    double ratio = of_weights > 0 && of_direction > 0 ? std::sqrt(of_weights) / std::sqrt(of_direction) : 1;
    for (int64_t i = 0; i < tensor.count; ++i)
      store_ref(tensor.weights, i, static_cast<float>(load_ref(tensor.weights, i) - options.lr * ratio * direction[i]));
  }
}

}  // namespace trireme::kernels
