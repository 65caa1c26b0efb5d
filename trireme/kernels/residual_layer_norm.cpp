#include "trireme/kernels/residual_layer_norm.h"

#include <immintrin.h>

#include "trireme/base/error.h"
#include "trireme/cpu/isa.h"
#include "trireme/cpu/target_region.h"
#include "trireme/cpu/vector_types.h"
#include "trireme/kernels/rows.h"

namespace trireme::kernels {

#define TRIREME_BODY "trireme/kernels/residual_layer_norm-inl.h"
#include "trireme/kernels/foreach_isa.h"

template <class T>
void residual_layer_norm_forward(const ResidualLayerNormForward<T>& call) {
  check_shape("residual_layer_norm", call.rows, call.H);
  if (call.y == call.z && call.rows > 0)
    throw InvalidArgument("residual_layer_norm: y is z; the backward pass needs z, so give y a buffer of its own");
  RowOrConstant bias(call.bias, 0, call.H), gamma(call.gamma, 1, call.H), beta(call.beta, 0, call.H);
  auto part = TRIREME_AT_LEVEL(residual_layer_norm_rows<T>);
  parallel_rows(call.rows, call.H,
                [&](int64_t begin, int64_t end) { part(call, bias.data(), gamma.data(), beta.data(), begin, end); });
}

template <class T>
void residual_layer_norm_backward(const ResidualLayerNormBackward<T>& call) {
  check_shape("residual_layer_norm", call.rows, call.H);
  if (call.dx == call.dz && call.dropout.active() && call.rows > 0)
    throw InvalidArgument("residual_layer_norm: dx is dz, but with dropout they differ; leave dz null if it is not wanted");
  RowOrConstant gamma(call.gamma, 1, call.H);
  ColumnSums sums(call.rows, call.H, 3);
  auto part = TRIREME_AT_LEVEL(residual_layer_norm_backward_rows<T>);
  sums.add([&](int64_t begin, int64_t end, float* partial) {
    part(call, gamma.data(), begin, end, partial, partial + sums.stride(), partial + 2 * sums.stride());
  });
  sums.write({call.dbias, call.dgamma, call.dbeta});
}

template void residual_layer_norm_forward(const ResidualLayerNormForward<float>&);
template void residual_layer_norm_forward(const ResidualLayerNormForward<bfloat16>&);
template void residual_layer_norm_backward(const ResidualLayerNormBackward<float>&);
template void residual_layer_norm_backward(const ResidualLayerNormBackward<bfloat16>&);

}  // namespace trireme::kernels
