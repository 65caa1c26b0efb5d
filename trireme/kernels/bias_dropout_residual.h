// What follows the GEMM of a dense layer in a pre-norm transformer: bias, dropout, residual connection. T is float or
// bfloat16; the mask as in dropout.h, stream 0.
#pragma once

#include <cstdint>

#include "trireme/base/float16.h"
#include "trireme/kernels/dropout.h"

namespace trireme::kernels {

// z = dropout(x + bias) + residual.
template <class T>
struct BiasDropoutResidualForward {
  const T* x = nullptr;         // [rows, H]: the GEMM's output without its bias
  const float* bias = nullptr;  // [H]; null: 0
  const T* residual = nullptr;  // [rows, H]; null: 0
  T* z = nullptr;               // [rows, H]; may be x or residual
  int64_t rows = 0;
  int64_t H = 0;
  Dropout dropout = {};
};

// dz is the residual's gradient as it is; dx is dz where the mask kept x, scaled; dbias the sum of dx over rows, the same
// bits for any number of threads.
template <class T>
struct BiasDropoutResidualBackward {
  const T* dz = nullptr;   // [rows, H]
  T* dx = nullptr;         // [rows, H]; may be dz
  float* dbias = nullptr;  // [H], written; null: not wanted
  int64_t rows = 0;
  int64_t H = 0;
  Dropout dropout = {};
};

// For T = float and bfloat16. InvalidArgument unless rows >= 0 and H >= 1.
template <class T>
void bias_dropout_residual_forward(const BiasDropoutResidualForward<T>& call);
template <class T>
void bias_dropout_residual_backward(const BiasDropoutResidualBackward<T>& call);

void bias_dropout_residual_forward_ref(const BiasDropoutResidualForward<float>& call);
void bias_dropout_residual_backward_ref(const BiasDropoutResidualBackward<float>& call);

}  // namespace trireme::kernels
