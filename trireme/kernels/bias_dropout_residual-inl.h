// Bias, dropout and residual connection, per ISA level. bias is there.
#include "trireme/kernels/residual_row-inl.h"

template <class T>
void bias_dropout_residual_rows(const BiasDropoutResidualForward<T>& call, const float* bias, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    int64_t at = row * call.H;
    compose_row(call.x + at, bias, call.residual ? call.residual + at : nullptr, call.z + at, call.H, row, call.dropout);
  }
}

template <class T>
void bias_dropout_residual_backward_rows(const BiasDropoutResidualBackward<T>& call, int64_t begin, int64_t end,
                                         float* dbias) {
  for (int64_t row = begin; row < end; ++row)
    compose_row_backward(call.dz + row * call.H, call.dx + row * call.H, dbias, call.H, row, call.dropout);
}
