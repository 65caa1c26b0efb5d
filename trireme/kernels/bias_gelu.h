// GELU of a dense layer's output: y = gelu(x + bias). T is float or bfloat16, the bias float, all arithmetic fp32.
//
// Within 2^-22 * max(|x|, 1) of the true value forward, 2^-21 backward (before rounding to T); no call to libm. Infinities:
// gelu(inf) = inf, gelu(-inf) = NaN as in torch; the derivatives there are their limits 1 and 0.
#pragma once

#include <cstdint>

#include "trireme/base/float16.h"

namespace trireme::kernels {

enum class Gelu {
  erf,   // x Phi(x), Phi the normal distribution: torch's approximate="none", HF's "gelu"
  tanh,  // x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))): torch's approximate="tanh", HF's "gelu_new" and
         // "gelu_pytorch_tanh"
};

template <class T>
struct BiasGeluForward {
  const T* x = nullptr;         // [rows, H]: the GEMM's output without its bias
  const float* bias = nullptr;  // [H]; null: 0
  T* y = nullptr;               // [rows, H]; may be x
  int64_t rows = 0;
  int64_t H = 0;
  Gelu form = Gelu::erf;
};

// dx = dy * gelu'(x + bias), and y once more, with the bits that it had forward: keeping x and y for every layer takes twice the memory. dbias, the sum of
// dx over rows, has the same bits for any number of threads.
template <class T>
struct BiasGeluBackward {
  const T* dy = nullptr;        // [rows, H]
  const T* x = nullptr;         // [rows, H], as it was forward
  const float* bias = nullptr;  // [H]; null: 0
  T* dx = nullptr;              // [rows, H]; may be dy or x
  T* y = nullptr;               // [rows, H], written; may be x unless dx is; null: not wanted
  float* dbias = nullptr;       // [H], written; null: not wanted
  int64_t rows = 0;
  int64_t H = 0;
  Gelu form = Gelu::erf;
};

// For T = float and bfloat16. InvalidArgument unless rows >= 0 and H >= 1.
template <class T>
void bias_gelu_forward(const BiasGeluForward<T>& call);
template <class T>
void bias_gelu_backward(const BiasGeluBackward<T>& call);

void bias_gelu_forward_ref(const BiasGeluForward<float>& call);
void bias_gelu_backward_ref(const BiasGeluBackward<float>& call);

}  // namespace trireme::kernels
