// GELU by its formulas, in double.
#include <cmath>
#include <numbers>
#include <vector>

#include "trireme/kernels/bias_gelu.h"

namespace trireme::kernels {

namespace {

constexpr double kCubic = 0.044715;
const double kScale = std::sqrt(2 / std::numbers::pi);

double gelu(double x, Gelu form) {
  if (form == Gelu::erf) return x * 0.5 * std::erfc(-x / std::numbers::sqrt2);
  return 0.5 * x * (1 + std::tanh(kScale * (x + kCubic * x * x * x)));
}

double gelu_derivative(double x, Gelu form) {
  if (std::isinf(x)) return x > 0 ? 1 : 0;
  if (form == Gelu::erf)
    return 0.5 * std::erfc(-x / std::numbers::sqrt2) + x * std::exp(-x * x / 2) / std::sqrt(2 * std::numbers::pi);
  double t = std::tanh(kScale * (x + kCubic * x * x * x));
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * kScale * (1 + 3 * kCubic * x * x);
}

}  // namespace

void bias_gelu_forward_ref(const BiasGeluForward<float>& call) {
  for (int64_t i = 0; i < call.rows * call.H; ++i)
    call.y[i] = gelu(double{call.x[i]} + (call.bias ? call.bias[i % call.H] : 0), call.form);
}

void bias_gelu_backward_ref(const BiasGeluBackward<float>& call) {
  std::vector<double> dbias(call.H);
  for (int64_t i = 0; i < call.rows * call.H; ++i) {
    double x = double{call.x[i]} + (call.bias ? call.bias[i % call.H] : 0);
    double dx = call.dy[i] * gelu_derivative(x, call.form);
    dbias[i % call.H] += dx;
    call.dx[i] = dx;
    if (call.y) call.y[i] = gelu(x, call.form);
  }
  if (call.dbias)
    for (int64_t i = 0; i < call.H; ++i) call.dbias[i] = dbias[i];
}

}  // namespace trireme::kernels
