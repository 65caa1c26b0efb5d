#include "trireme/kernels/bias_gelu.h"

#include <immintrin.h>

#include "trireme/cpu/isa.h"
#include "trireme/cpu/target_region.h"
#include "trireme/cpu/vector_types.h"
#include "trireme/kernels/rows.h"

namespace trireme::kernels {

#define TRIREME_BODY "trireme/kernels/bias_gelu-inl.h"
#include "trireme/kernels/foreach_isa.h"

template <class T>
void bias_gelu_forward(const BiasGeluForward<T>& call) {
  check_shape("bias_gelu", call.rows, call.H);
  RowOrConstant bias(call.bias, 0, call.H);
  auto part = TRIREME_AT_LEVEL(bias_gelu_rows<T>);
  parallel_rows(call.rows, call.H, [&](int64_t begin, int64_t end) { part(call, bias.data(), begin, end); });
}

template <class T>
void bias_gelu_backward(const BiasGeluBackward<T>& call) {
  check_shape("bias_gelu", call.rows, call.H);
  RowOrConstant bias(call.bias, 0, call.H);
  ColumnSums sums(call.rows, call.H, 1);
  auto part = TRIREME_AT_LEVEL(bias_gelu_backward_rows<T>);
  sums.add([&](int64_t begin, int64_t end, float* partial) { part(call, bias.data(), begin, end, partial); });
  sums.write({call.dbias});
}

template void bias_gelu_forward(const BiasGeluForward<float>&);
template void bias_gelu_forward(const BiasGeluForward<bfloat16>&);
template void bias_gelu_backward(const BiasGeluBackward<float>&);
template void bias_gelu_backward(const BiasGeluBackward<bfloat16>&);

}  // namespace trireme::kernels
