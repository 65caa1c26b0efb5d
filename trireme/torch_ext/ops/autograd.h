// What the operators' autograd functions share.
//
// X is an operator of several parts: X_forward and X_backward, which compute and know nothing of gradients (CPU, and Meta
// for the shapes alone, so that torch.compile sees through them); a torch::autograd::Function that calls both through the
// dispatcher; and X itself, which calls the function.
#pragma once

#include <ATen/autocast_mode.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/autograd/autograd_not_implemented_fallback.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "trireme/torch_ext/ops/tensors.h"

namespace trireme::ops {

using OptionalTensor = std::optional<at::Tensor>;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

template <class Signature>
auto operator_named(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Signature>();
}

inline bool is_given(const OptionalTensor& x) { return x && x->defined(); }
inline at::Tensor or_undefined(const OptionalTensor& x) { return is_given(x) ? *x : at::Tensor(); }
inline OptionalTensor or_none(const at::Tensor& x) { return x.defined() ? OptionalTensor(x) : std::nullopt; }

// A set of a function's tensor arguments: bit i for argument i.
using ArgumentSet = int64_t;
inline bool has(ArgumentSet set, size_t i) { return set >> i & 1; }
inline ArgumentSet first_arguments(size_t count) { return (ArgumentSet{1} << count) - 1; }

inline ArgumentSet given_of(std::initializer_list<OptionalTensor> arguments) {
  ArgumentSet given = 0;
  size_t i = 0;
  for (const OptionalTensor& each : arguments) given |= ArgumentSet{is_given(each)} << i++;
  return given;
}

// Those whose gradients are wanted, in a backward pass. An optional argument that was not given has no edge in the graph:
// edges are counted over `given`.
inline ArgumentSet wanted_of(AutogradContext* ctx, ArgumentSet given) {
  ArgumentSet wanted = 0;
  size_t edge = 0;
  for (size_t i = 0; given >> i; ++i)
    if (has(given, i)) wanted |= ArgumentSet{ctx->needs_input_grad(edge++)} << i;
  return wanted;
}

// What an operator returns for a gradient that nobody wants: operators return tensors.
inline at::Tensor nothing() { return at::empty({0}, at::kFloat); }
inline at::Tensor nothing_like(const at::Tensor& x) { return x.new_empty({0}, at::TensorOptions(at::kFloat)); }

// `count` inputs, of which those in the set have gradients: the list that a function's backward returns.
inline variable_list gradients_for(size_t count, ArgumentSet set, std::initializer_list<at::Tensor> gradients) {
  variable_list inputs(count);
  size_t i = 0;
  for (const at::Tensor& gradient : gradients) {
    if (has(set, i)) inputs[i] = gradient;
    ++i;
  }
  return inputs;
}

// Differentiating the parts of an operator themselves, as a second derivative does, is an error and not silence.
inline void refuse_derivatives(torch::Library& library, std::initializer_list<const char*> parts) {
  for (const char* part : parts) library.impl(part, torch::autograd::autogradNotImplementedFallback());
}

// ---- torch.autocast ----

// While it lives, autocast is off. What computes with at:: operators needs it: their results would change type under its
// hands.
struct NoAutocast {
  c10::impl::ExcludeDispatchKeyGuard guard{c10::DispatchKey::AutocastCPU};
};

// To autocast's type, by the rule and the cache that serve linear.
inline at::Tensor autocast(const at::Tensor& x) {
  return at::autocast::cached_cast(at::autocast::get_autocast_dtype(at::kCPU), x, at::kCPU);
}

}  // namespace trireme::ops
