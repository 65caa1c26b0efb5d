// The two references that it is made of, one after the other. The mask lies between them, so dz and dx are both needed.
#include <algorithm>
#include <vector>

#include "trireme/kernels/bias_dropout_residual.h"
#include "trireme/kernels/layer_norm.h"
#include "trireme/kernels/residual_layer_norm.h"

namespace trireme::kernels {

void residual_layer_norm_forward_ref(const ResidualLayerNormForward<float>& call) {
  bias_dropout_residual_forward_ref({.x = call.x,
                                     .bias = call.bias,
                                     .residual = call.residual,
                                     .z = call.z,
                                     .rows = call.rows,
                                     .H = call.H,
                                     .dropout = call.dropout});
  layer_norm_forward_ref({.x = call.z,
                          .gamma = call.gamma,
                          .beta = call.beta,
                          .y = call.y,
                          .mean = call.mean,
                          .rstd = call.rstd,
                          .rows = call.rows,
                          .H = call.H,
                          .eps = call.eps});
}

void residual_layer_norm_backward_ref(const ResidualLayerNormBackward<float>& call) {
  std::vector<float> dz(call.rows * call.H);
  layer_norm_backward_ref({.dy = call.dy,
                           .x = call.z,
                           .mean = call.mean,
                           .rstd = call.rstd,
                           .gamma = call.gamma,
                           .dx = dz.data(),
                           .dgamma = call.dgamma,
                           .dbeta = call.dbeta,
                           .rows = call.rows,
                           .H = call.H});
  bias_dropout_residual_backward_ref(
      {.dz = dz.data(), .dx = call.dx, .dbias = call.dbias, .rows = call.rows, .H = call.H, .dropout = call.dropout});
  if (call.dz) std::copy(dz.begin(), dz.end(), call.dz);
}

}  // namespace trireme::kernels
