#include <cmath>

#include "trireme/kernels/matmul.h"

namespace trireme::kernels {

void matmul_ref(const Matmul& call) {
  for (int64_t m = 0; m < call.M; ++m)
    for (int64_t n = 0; n < call.N; ++n) {
      float& c = call.c[m * call.c_row + n];
      float sum = call.accumulate ? c : 0;
      for (int64_t k = 0; k < call.K; ++k)
        sum = std::fma(call.a.data[m * call.a.row + k * call.a.column], call.b.data[k * call.b.row + n * call.b.column], sum);
      c = sum;
    }
}

}  // namespace trireme::kernels
