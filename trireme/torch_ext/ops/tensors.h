// Between torch's tensors and the kernels' plain pointers.
#pragma once

#include <ATen/ATen.h>

#include <span>

#include "trireme/base/error.h"
#include "trireme/base/float16.h"
#include "trireme/kernels/dropout.h"
#include "trireme/torch_ext/ops/threads.h"

namespace trireme::ops {

template <class T>
T* data(const at::Tensor& x) {
  return static_cast<T*>(x.mutable_data_ptr());
}

// nullptr where there is none.
template <class T>
T* data(const std::optional<at::Tensor>& x) {
  return x && x->defined() ? data<T>(*x) : nullptr;
}

// body(T{}) with the kernels' type for the tensor's.
template <class Body>
void with_element_type(const char* op, const at::Tensor& x, const Body& body) {
  TORCH_CHECK(x.device().is_cpu(), op, ": the tensor lies on ", x.device(), "; it must lie in the CPU's memory");
  torch_ext::take_number_of_threads();
  if (x.scalar_type() == at::kFloat) return body(float{});
  if (x.scalar_type() == at::kBFloat16) return body(bfloat16{});
  TORCH_CHECK_NOT_IMPLEMENTED(false, op, ": ", x.scalar_type(), " is not supported; float32 and bfloat16 are");
}

// Parameters as the kernels take them: contiguous floats.
inline at::Tensor as_float(const at::Tensor& x) { return x.to(at::kFloat).contiguous(); }
inline std::optional<at::Tensor> as_float(const std::optional<at::Tensor>& x) {
  return x && x->defined() ? std::optional(as_float(*x)) : std::nullopt;
}

// Sizes may be symbols: torch.compile's.
inline void check_parameter(const char* op, const char* name, const at::Tensor& x, c10::SymIntArrayRef sizes) {
  TORCH_CHECK(x.sym_sizes() == sizes, op, ": ", name, " is ", x.sym_sizes(), "; it must be ", sizes);
  TORCH_CHECK_NOT_IMPLEMENTED(x.scalar_type() == at::kFloat || x.scalar_type() == at::kBFloat16, op, ": ", name, ": ",
                              x.scalar_type(), " is not supported; float32 and bfloat16 are");
}

// A parameter of one element per column, as floats.
inline std::optional<at::Tensor> row_parameter(const char* op, const char* name, const std::optional<at::Tensor>& x,
                                               int64_t H) {
  if (!x || !x->defined()) return std::nullopt;
  check_parameter(op, name, *x, {H});
  return as_float(*x);
}

// Where each sequence begins, and where the last one ends.
inline std::span<const int64_t> bounds_of(const char* op, const at::Tensor& cu_seqlens, int64_t tokens) {
  TORCH_CHECK(
      cu_seqlens.dim() == 1 && cu_seqlens.scalar_type() == at::kLong && cu_seqlens.is_contiguous() && cu_seqlens.numel() > 0,
      op, ": cu_seqlens must be a contiguous vector of int64 with one more element than there are sequences");
  std::span bounds(cu_seqlens.const_data_ptr<int64_t>(), static_cast<size_t>(cu_seqlens.numel()));
  TORCH_CHECK(bounds.front() == 0 && bounds.back() == tokens, op, ": cu_seqlens goes from ", bounds.front(), " to ",
              bounds.back(), ", but there are ", tokens, " tokens");
  for (size_t i = 1; i < bounds.size(); ++i)
    TORCH_CHECK(bounds[i] > bounds[i - 1], op, ": sequence ", i - 1, bounds[i] == bounds[i - 1] ? " is empty" : " ends before it begins");
  return bounds;
}

// With element i of the seeds, if there is anything to drop.
inline kernels::Dropout dropout_of(const char* op, double p, const at::Tensor& seeds, int64_t i) {
  TORCH_CHECK_VALUE(p >= 0 && p <= 1, op, ": the dropout probability is ", p, "; it must lie between 0 and 1");
  if (p == 0) return {};
  TORCH_CHECK(seeds.is_contiguous() && seeds.numel() > i, op, ": the seeds are ", seeds.sizes(), "; there is no seed ", i);
  return kernels::make_dropout(p, static_cast<uint64_t>(seeds.const_data_ptr<int64_t>()[i]));
}

// n seeds from torch's CPU generator, so that manual_seed, rng_state and checkpointing behave; none is drawn where nothing
// is dropped.
inline at::Tensor draw_seeds(int64_t n, bool wanted) {
  return wanted ? at::randint(std::numeric_limits<int64_t>::max(), {n}, at::kLong) : at::empty({0}, at::kLong);
}

}  // namespace trireme::ops
