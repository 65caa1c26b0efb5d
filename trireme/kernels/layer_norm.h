// LayerNorm over rows of H elements. Activations T are float or bfloat16; parameters, statistics and sums are float, and all
// arithmetic is. One pass over memory each way: a row stays in the first-level cache between the looks at it.
#pragma once

#include <cstdint>

#include "trireme/base/float16.h"

namespace trireme::kernels {

// y = (x - mean) * rstd * gamma + beta, rstd = 1 / sqrt(variance + eps).
template <class T>
struct LayerNormForward {
  const T* x = nullptr;          // [rows, H]
  const float* gamma = nullptr;  // [H]; null: 1
  const float* beta = nullptr;   // [H]; null: 0
  T* y = nullptr;                // [rows, H]; may be x
  float* mean = nullptr;         // [rows]; null: not wanted
  float* rstd = nullptr;         // [rows]; null: not wanted
  int64_t rows = 0;
  int64_t H = 0;
  float eps = 1e-5f;
};

// Of dy: dx, and the sums over rows dgamma and dbeta, the same bits for any number of threads.
template <class T>
struct LayerNormBackward {
  const T* dy = nullptr;         // [rows, H]
  const T* x = nullptr;          // [rows, H], as it was forward
  const float* mean = nullptr;   // [rows], from forward
  const float* rstd = nullptr;   // [rows], from forward
  const float* gamma = nullptr;  // [H]; null: 1
  T* dx = nullptr;               // [rows, H]; may be dy or x
  float* dgamma = nullptr;       // [H], written; null: not wanted
  float* dbeta = nullptr;        // [H], written; null: not wanted
  int64_t rows = 0;
  int64_t H = 0;
};

// For T = float and bfloat16. InvalidArgument unless rows >= 0 and H >= 1.
template <class T>
void layer_norm_forward(const LayerNormForward<T>& call);
template <class T>
void layer_norm_backward(const LayerNormBackward<T>& call);

void layer_norm_forward_ref(const LayerNormForward<float>& call);
void layer_norm_backward_ref(const LayerNormBackward<float>& call);

}  // namespace trireme::kernels
