// Bias, dropout, residual connection and LayerNorm, per ISA level. bias, gamma and beta are there.
#include "trireme/kernels/norm_row-inl.h"
#include "trireme/kernels/residual_row-inl.h"

// LayerNorm sees z as it is stored: the backward pass has no other.
template <class T>
void residual_layer_norm_rows(const ResidualLayerNormForward<T>& call, const float* bias, const float* gamma,
                              const float* beta, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    int64_t at = row * call.H;
    T* z = call.z + at;
    compose_row(call.x + at, bias, call.residual ? call.residual + at : nullptr, z, call.H, row, call.dropout);
    Moments moments = moments_of(z, call.H, call.eps);
    if (call.mean) call.mean[row] = moments.mean;
    if (call.rstd) call.rstd[row] = moments.rstd;
    normalise_row(z, moments, gamma, beta, call.y + at, call.H);
  }
}

template <class T>
void residual_layer_norm_backward_rows(const ResidualLayerNormBackward<T>& call, const float* gamma, int64_t begin,
                                       int64_t end, float* dbias, float* dgamma, float* dbeta) {
  for (int64_t row = begin; row < end; ++row) {
    int64_t at = row * call.H;
    T* dx = call.dx + at;
    T* dz = call.dz ? call.dz + at : dx;
    normalise_row_backward(call.dy + at, call.z + at, {call.mean[row], call.rstd[row]}, gamma, dz, dgamma, dbeta, call.H);
    compose_row_backward(dz, dx, dbias, call.H, row, call.dropout);
  }
}
