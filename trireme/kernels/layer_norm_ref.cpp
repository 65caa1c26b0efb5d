// LayerNorm by its formulas, in double.
#include <cmath>
#include <vector>

#include "trireme/kernels/layer_norm.h"

namespace trireme::kernels {

void layer_norm_forward_ref(const LayerNormForward<float>& call) {
  for (int64_t row = 0; row < call.rows; ++row) {
    const float* x = call.x + row * call.H;
    double mean = 0, variance = 0;
    for (int64_t i = 0; i < call.H; ++i) mean += x[i];
    mean /= call.H;
    for (int64_t i = 0; i < call.H; ++i) variance += (x[i] - mean) * (x[i] - mean);
    variance /= call.H;
    double rstd = 1 / std::sqrt(variance + call.eps);
    if (call.mean) call.mean[row] = mean;
    if (call.rstd) call.rstd[row] = rstd;
    for (int64_t i = 0; i < call.H; ++i) {
      double scaled = (x[i] - mean) * rstd * (call.gamma ? call.gamma[i] : 1);
      call.y[row * call.H + i] = scaled + (call.beta ? call.beta[i] : 0);
    }
  }
}

void layer_norm_backward_ref(const LayerNormBackward<float>& call) {
  std::vector<double> dgamma(call.H), dbeta(call.H), normal(call.H), g(call.H);
  for (int64_t row = 0; row < call.rows; ++row) {
    double mean_g = 0, mean_gn = 0;
    for (int64_t i = 0; i < call.H; ++i) {
      double dy = call.dy[row * call.H + i];
      normal[i] = (double{call.x[row * call.H + i]} - call.mean[row]) * call.rstd[row];
      g[i] = dy * (call.gamma ? call.gamma[i] : 1);
      dgamma[i] += dy * normal[i];
      dbeta[i] += dy;
      mean_g += g[i] / call.H;
      mean_gn += g[i] * normal[i] / call.H;
    }
    for (int64_t i = 0; i < call.H; ++i) call.dx[row * call.H + i] = call.rstd[row] * (g[i] - mean_g - normal[i] * mean_gn);
  }
  for (int64_t i = 0; i < call.H; ++i) {
    if (call.dgamma) call.dgamma[i] = dgamma[i];
    if (call.dbeta) call.dbeta[i] = dbeta[i];
  }
}

}  // namespace trireme::kernels
