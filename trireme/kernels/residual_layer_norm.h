// What follows the GEMM of a dense layer in a post-norm transformer: bias, dropout, residual connection, LayerNorm, in one
// pass over memory. T, parameters and statistics as in layer_norm.h; the mask as in dropout.h, stream 0.
#pragma once

#include <cstdint>

#include "trireme/base/float16.h"
#include "trireme/kernels/dropout.h"

namespace trireme::kernels {

// z = dropout(x + bias) + residual, rounded to T; y = LayerNorm(z).
template <class T>
struct ResidualLayerNormForward {
  const T* x = nullptr;          // [rows, H]: the GEMM's output without its bias
  const float* bias = nullptr;   // [H]; null: 0
  const T* residual = nullptr;   // [rows, H]; null: 0
  const float* gamma = nullptr;  // [H]; null: 1
  const float* beta = nullptr;   // [H]; null: 0
  T* z = nullptr;                // [rows, H], for the backward pass; may be x or residual
  T* y = nullptr;                // [rows, H]; another buffer than z
  float* mean = nullptr;         // [rows]; null: not wanted
  float* rstd = nullptr;         // [rows]; null: not wanted
  int64_t rows = 0;
  int64_t H = 0;
  float eps = 1e-5f;
  Dropout dropout = {};
};

// dz, the residual's gradient; dx, dz where the mask kept x, scaled; dbias, the sum of dx over rows.
// Sums have the same bits for any number of threads.
template <class T>
struct ResidualLayerNormBackward {
  const T* dy = nullptr;         // [rows, H]
  const T* z = nullptr;          // [rows, H], from forward
  const float* mean = nullptr;   // [rows], from forward
  const float* rstd = nullptr;   // [rows], from forward
  const float* gamma = nullptr;  // [H]; null: 1
  T* dz = nullptr;               // [rows, H]; may be dy or z; null: not wanted
  T* dx = nullptr;               // [rows, H]; may be dy or z, and dz too where dropout is inactive
  float* dbias = nullptr;        // [H], written; null: not wanted
  float* dgamma = nullptr;       // [H], written; null: not wanted
  float* dbeta = nullptr;        // [H], written; null: not wanted
  int64_t rows = 0;
  int64_t H = 0;
  Dropout dropout = {};
};

// For T = float and bfloat16. InvalidArgument unless rows >= 0 and H >= 1, and for dx == dz or y == z where that is not
// allowed.
template <class T>
void residual_layer_norm_forward(const ResidualLayerNormForward<T>& call);
template <class T>
void residual_layer_norm_backward(const ResidualLayerNormBackward<T>& call);

void residual_layer_norm_forward_ref(const ResidualLayerNormForward<float>& call);
void residual_layer_norm_backward_ref(const ResidualLayerNormBackward<float>& call);

}  // namespace trireme::kernels
