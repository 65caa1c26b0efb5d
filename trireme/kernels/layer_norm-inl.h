// LayerNorm alone, per ISA level. gamma and beta are there.
#include "trireme/kernels/norm_row-inl.h"

template <class T>
void layer_norm_rows(const LayerNormForward<T>& call, const float* gamma, const float* beta, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    const T* x = call.x + row * call.H;
    Moments moments = moments_of(x, call.H, call.eps);
    if (call.mean) call.mean[row] = moments.mean;
    if (call.rstd) call.rstd[row] = moments.rstd;
    normalise_row(x, moments, gamma, beta, call.y + row * call.H, call.H);
  }
}

template <class T>
void layer_norm_backward_rows(const LayerNormBackward<T>& call, const float* gamma, int64_t begin, int64_t end,
                              float* dgamma, float* dbeta) {
  for (int64_t row = begin; row < end; ++row) {
    int64_t at = row * call.H;
    normalise_row_backward(call.dy + at, call.x + at, {call.mean[row], call.rstd[row]}, gamma, call.dx + at, dgamma, dbeta,
                           call.H);
  }
}
