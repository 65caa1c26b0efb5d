#include "trireme/torch_ext/ops/bf16.h"

#include <ATen/ops/empty_like.h>
#include <torch/library.h>

#include "trireme/kernels/bf16.h"
#include "trireme/torch_ext/ops/threads.h"

namespace trireme::torch_ext {
namespace {

bfloat16* bf16_data(const at::Tensor& tensor) { return static_cast<bfloat16*>(tensor.data_ptr()); }
uint16_t* bits_data(const at::Tensor& tensor) { return static_cast<uint16_t*>(tensor.data_ptr()); }

// Results lie as their input does where that has no gaps or overlaps, and end to end otherwise.
at::Tensor dense(const at::Tensor& tensor) { return tensor.is_non_overlapping_and_dense() ? tensor : tensor.contiguous(); }

// Two halves of one layout, in which they can be read side by side.
std::pair<at::Tensor, at::Tensor> dense(const at::Tensor& upper, const at::Tensor& lower) {
  if (upper.is_non_overlapping_and_dense() && upper.strides() == lower.strides()) return {upper, lower};
  return {upper.contiguous(), lower.contiguous()};
}

void check_float(const char* op, const at::Tensor& weights) {
  TORCH_CHECK(weights.scalar_type() == at::kFloat, "trireme::", op, ": the tensor is of dtype ", weights.scalar_type(),
              "; it must be float32");
}

at::Tensor empty_rounded(const at::Tensor& weights) {
  check_float("round_bf16", weights);
  return at::empty_like(weights, weights.options().dtype(at::kBFloat16));
}

at::Tensor empty_widened(const at::Tensor& weights) {
  TORCH_CHECK(weights.scalar_type() == at::kBFloat16, "trireme::widen_bf16: the tensor is of dtype ", weights.scalar_type(),
              "; it must be bfloat16");
  return at::empty_like(weights, weights.options().dtype(at::kFloat));
}

std::tuple<at::Tensor, at::Tensor> empty_halves(const at::Tensor& weights) {
  check_float("split_bf16", weights);
  return {at::empty_like(weights, weights.options().dtype(at::kBFloat16)),
          at::empty_like(weights, weights.options().dtype(at::kShort))};
}

at::Tensor empty_joined(const at::Tensor& upper, const at::Tensor& lower) {
  TORCH_CHECK(upper.scalar_type() == at::kBFloat16 && lower.scalar_type() == at::kShort,
              "trireme::join_bf16: the halves are of dtypes ", upper.scalar_type(), " and ", lower.scalar_type(),
              "; they must be bfloat16 and int16");
  TORCH_CHECK(upper.sizes() == lower.sizes(), "trireme::join_bf16: the halves have the shapes ", upper.sizes(), " and ",
              lower.sizes());
  return at::empty_like(upper, upper.options().dtype(at::kFloat));
}

}  // namespace

at::Tensor round_bf16(const at::Tensor& weights) {
  at::Tensor from = dense(weights), to = empty_rounded(from);
  take_number_of_threads();
  kernels::convert(from.const_data_ptr<float>(), bf16_data(to), from.numel());
  return to;
}

at::Tensor widen_bf16(const at::Tensor& weights) {
  at::Tensor from = dense(weights), to = empty_widened(from);
  take_number_of_threads();
  kernels::convert(bf16_data(from), to.mutable_data_ptr<float>(), from.numel());
  return to;
}

std::tuple<at::Tensor, at::Tensor> split_bf16(const at::Tensor& weights) {
  at::Tensor from = dense(weights);
  auto [upper, lower] = empty_halves(from);
  take_number_of_threads();
  kernels::split(from.const_data_ptr<float>(), bf16_data(upper), bits_data(lower), from.numel());
  return {upper, lower};
}

at::Tensor join_bf16(const at::Tensor& upper, const at::Tensor& lower) {
  const auto [above, below] = dense(upper, lower);
  at::Tensor joined = empty_joined(above, below);
  take_number_of_threads();
  kernels::join(bf16_data(above), bits_data(below), joined.mutable_data_ptr<float>(), above.numel());
  return joined;
}

TORCH_LIBRARY_FRAGMENT(trireme, library) {
  library.def("round_bf16(Tensor weights) -> Tensor");
  library.def("widen_bf16(Tensor weights) -> Tensor");
  library.def("split_bf16(Tensor weights) -> (Tensor, Tensor)");
  library.def("join_bf16(Tensor upper, Tensor lower) -> Tensor");
}

TORCH_LIBRARY_IMPL(trireme, CPU, library) {
  library.impl("round_bf16", round_bf16);
  library.impl("widen_bf16", widen_bf16);
  library.impl("split_bf16", split_bf16);
  library.impl("join_bf16", join_bf16);
}

TORCH_LIBRARY_IMPL(trireme, Meta, library) {
  library.impl("round_bf16", [](const at::Tensor& weights) { return empty_rounded(dense(weights)); });
  library.impl("widen_bf16", [](const at::Tensor& weights) { return empty_widened(dense(weights)); });
  library.impl("split_bf16", [](const at::Tensor& weights) { return empty_halves(dense(weights)); });
  library.impl("join_bf16", [](const at::Tensor& upper, const at::Tensor& lower) {
    const auto [above, below] = dense(upper, lower);
    return empty_joined(above, below);
  });
}

}  // namespace trireme::torch_ext
