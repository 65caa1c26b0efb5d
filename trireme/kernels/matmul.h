// Matrix products of fp32, for those of a layer: tokens by features, both in the hundreds or more. C = A B, or C += A B.
//
// Every element of C is one chain of fused multiply-adds (of multiplications and additions where the CPU has none, or may not use them), from the
// first k to the last: the same bits for any number of threads, any place in the matrix and any size of vectors.
#pragma once

#include <cstdint>

namespace trireme::kernels {

// By strides, of which one must be 1: rows or columns lie in one piece.
struct MatrixView {
  const float* data = nullptr;
  int64_t row = 0, column = 0;
};

struct Matmul {
  MatrixView a;           // [M, K]
  MatrixView b;           // [K, N]
  float* c = nullptr;     // [M, N], rows c_row apart; overlaps neither
  int64_t c_row = 0;
  int64_t M = 0, N = 0, K = 0;
  bool accumulate = false;  // C += A B
};

// InvalidArgument where a size is negative, a stride is not as said above, or N is no multiple of kMatmulColumns. Where memory
// runs out, C holds anything.
void matmul(const Matmul& call);
void matmul_ref(const Matmul& call);

constexpr int64_t kMatmulColumns = 16;

}  // namespace trireme::kernels
