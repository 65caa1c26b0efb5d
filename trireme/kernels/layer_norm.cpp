#include "trireme/kernels/layer_norm.h"

#include <immintrin.h>

#include "trireme/cpu/isa.h"
#include "trireme/cpu/target_region.h"
#include "trireme/cpu/vector_types.h"
#include "trireme/kernels/rows.h"

namespace trireme::kernels {

#define TRIREME_BODY "trireme/kernels/layer_norm-inl.h"
#include "trireme/kernels/foreach_isa.h"

template <class T>
void layer_norm_forward(const LayerNormForward<T>& call) {
  check_shape("layer_norm", call.rows, call.H);
  RowOrConstant gamma(call.gamma, 1, call.H), beta(call.beta, 0, call.H);
  auto part = TRIREME_AT_LEVEL(layer_norm_rows<T>);
  parallel_rows(call.rows, call.H, [&](int64_t begin, int64_t end) { part(call, gamma.data(), beta.data(), begin, end); });
}

template <class T>
void layer_norm_backward(const LayerNormBackward<T>& call) {
  check_shape("layer_norm", call.rows, call.H);
  RowOrConstant gamma(call.gamma, 1, call.H);
  ColumnSums sums(call.rows, call.H, 2);
  auto part = TRIREME_AT_LEVEL(layer_norm_backward_rows<T>);
  sums.add([&](int64_t begin, int64_t end, float* partial) {
    part(call, gamma.data(), begin, end, partial, partial + sums.stride());
  });
  sums.write({call.dgamma, call.dbeta});
}

template void layer_norm_forward(const LayerNormForward<float>&);
template void layer_norm_forward(const LayerNormForward<bfloat16>&);
template void layer_norm_backward(const LayerNormBackward<float>&);
template void layer_norm_backward(const LayerNormBackward<bfloat16>&);

}  // namespace trireme::kernels
