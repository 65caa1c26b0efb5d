// Bias, dropout and residual connection one element at a time, in double.
#include <vector>

#include "trireme/kernels/bias_dropout_residual.h"

namespace trireme::kernels {

namespace {

double dropped(const Dropout& dropout, int64_t row, int64_t column, double value) {
  return keeps_ref(dropout, 0, static_cast<uint32_t>(row), static_cast<uint32_t>(column)) ? value * dropout.scale : 0;
}

}  // namespace

void bias_dropout_residual_forward_ref(const BiasDropoutResidualForward<float>& call) {
  for (int64_t row = 0; row < call.rows; ++row)
    for (int64_t column = 0; column < call.H; ++column) {
      int64_t i = row * call.H + column;
      double value = double{call.x[i]} + (call.bias ? call.bias[column] : 0);
      call.z[i] = dropped(call.dropout, row, column, value) + (call.residual ? call.residual[i] : 0);
    }
}

void bias_dropout_residual_backward_ref(const BiasDropoutResidualBackward<float>& call) {
  std::vector<double> dbias(call.H);
  for (int64_t row = 0; row < call.rows; ++row)
    for (int64_t column = 0; column < call.H; ++column) {
      int64_t i = row * call.H + column;
      double dx = dropped(call.dropout, row, column, call.dz[i]);
      call.dx[i] = dx;
      dbias[column] += dx;
    }
  if (call.dbias)
    for (int64_t column = 0; column < call.H; ++column) call.dbias[column] = dbias[column];
}

}  // namespace trireme::kernels
