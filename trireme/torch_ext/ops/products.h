// Matrix products of tensors: by kernels::matmul where it is preferred and can, by torch otherwise. Nothing is measured: a
// run has to repeat bit for bit.
#pragma once

#include <ATen/ATen.h>

#include "trireme/cpu/products.h"
#include "trireme/kernels/matmul.h"
#include "trireme/torch_ext/ops/threads.h"

namespace trireme::ops {

// Of few rows most of the time would go into packing.
constexpr int64_t kLeastMatmulRows = 96;

// Of shapes that do not fit, torch says so.
inline bool is_for_matmul(const at::Tensor& a, const at::Tensor& b, const at::Tensor& to) {
  const auto is_plain = [](const at::Tensor& x) {
    return x.scalar_type() == at::kFloat && x.layout() == at::kStrided && (x.stride(0) == 1 || x.stride(1) == 1);
  };
  return cpu::prefers_own_products() && is_plain(a) && is_plain(b) && is_plain(to) && to.stride(1) == 1 &&
         a.size(0) >= kLeastMatmulRows && b.size(1) % kernels::kMatmulColumns == 0 && a.size(1) == b.size(0) &&
         to.size(0) == a.size(0) && to.size(1) == b.size(1) && to.stride(0) >= to.size(1);
}

enum class Into { empty, sum };  // to = a b, to += a b

// All are matrices on the CPU; `to` is neither a nor b.
inline void multiply(const at::Tensor& a, const at::Tensor& b, at::Tensor to, Into into = Into::empty) {
  if (!is_for_matmul(a, b, to)) {
    into == Into::sum ? to.addmm_(a, b) : at::mm_out(to, a, b);
    return;
  }
  const auto view = [](const at::Tensor& x) { return kernels::MatrixView{x.const_data_ptr<float>(), x.stride(0), x.stride(1)}; };
  torch_ext::take_number_of_threads();
  kernels::matmul({.a = view(a),
                   .b = view(b),
                   .c = to.mutable_data_ptr<float>(),
                   .c_row = to.stride(0),
                   .M = a.size(0),
                   .N = b.size(1),
                   .K = a.size(1),
                   .accumulate = into == Into::sum});
}

inline at::Tensor product(const at::Tensor& a, const at::Tensor& b) {
  at::Tensor to = at::empty({a.size(0), b.size(1)}, a.options());
  multiply(a, b, to);
  return to;
}

}  // namespace trireme::ops
