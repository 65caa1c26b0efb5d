// trireme::attention: packed attention as an operator with a gradient.
#include "trireme/kernels/attention.h"

#include "trireme/torch_ext/ops/autograd.h"
#include "trireme/torch_ext/ops/ops.h"
#include "trireme/torch_ext/ops/tensors.h"

namespace trireme::ops {

namespace {

using at::Tensor;
using kernels::AttentionShape;
using kernels::Heads;

// [T, heads, D] with any strides but the last.
template <class T>
Heads<T> heads(const Tensor& x) {
  return {data<std::remove_const_t<T>>(x), x.stride(0), x.stride(1)};
}

Tensor rows_contiguous(const Tensor& x) {
  TORCH_CHECK(x.dim() == 3, "attention: q, k and v must be [tokens, heads, head_size]; one of them has ", x.dim(),
              " dimensions");
  return x.stride(2) == 1 || x.size(2) == 1 ? x : x.contiguous();
}

AttentionShape shape_of(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& cu_seqlens,
                        const OptionalTensor& bias, double scale, bool causal, const kernels::Dropout& dropout) {
  TORCH_CHECK(k.sizes() == v.sizes() && q.size(0) == k.size(0) && q.size(2) == k.size(2), "attention: q is ", q.sizes(),
              ", k ", k.sizes(), " and v ", v.sizes(), "; tokens and head_size must be the same");
  TORCH_CHECK(q.scalar_type() == k.scalar_type() && k.scalar_type() == v.scalar_type(),
              "attention: q, k and v must have one type");
  AttentionShape shape;
  shape.cu_seqlens = bounds_of("attention", cu_seqlens, q.size(0));
  shape.heads = q.size(1);
  shape.kv_heads = k.size(1);
  shape.head_size = q.size(2);
  shape.scale = static_cast<float>(scale);
  shape.causal = causal;
  shape.dropout = dropout;
  if (bias && bias->defined()) {
    const Tensor& b = *bias;
    TORCH_CHECK(b.dim() == 4 && b.scalar_type() == at::kFloat && (b.stride(3) == 1 || b.size(3) == 1),
                "attention: the bias must be float32 [sequences or 1, heads or 1, longest, longest]");
    int64_t longest = 0;
    for (int64_t i = 0; i < shape.sequences(); ++i)
      longest = std::max(longest, shape.cu_seqlens[i + 1] - shape.cu_seqlens[i]);
    TORCH_CHECK(b.size(3) >= longest && (b.size(2) >= longest || b.size(2) == 1) &&
                    (b.size(0) == 1 || b.size(0) == shape.sequences()) && (b.size(1) == 1 || b.size(1) == shape.heads),
                "attention: a bias of ", b.sizes(), " does not fit ", shape.sequences(), " sequences of up to ", longest,
                " tokens and ", shape.heads, " heads");
    auto stride = [&](int64_t i) { return b.size(i) == 1 ? 0 : b.stride(i); };
    shape.bias = {b.const_data_ptr<float>(), stride(0), stride(1), stride(2)};
  }
  return shape;
}

std::tuple<Tensor, Tensor> forward(const Tensor& q_, const Tensor& k_, const Tensor& v_, const Tensor& cu_seqlens,
                                   const OptionalTensor& bias, double scale, bool causal, double p, const Tensor& seeds) {
  Tensor q = rows_contiguous(q_), k = rows_contiguous(k_), v = rows_contiguous(v_);
  AttentionShape shape = shape_of(q, k, v, cu_seqlens, bias, scale, causal, dropout_of("attention", p, seeds, 0));
  Tensor out = at::empty(q.sizes(), q.options()),
         softmax = at::empty({2, shape.heads, shape.tokens()}, q.options().dtype(at::kFloat));
  with_element_type("attention", q, [&]<class T>(T) {
    kernels::attention_forward<T>(shape, heads<const T>(q), heads<const T>(k), heads<const T>(v), heads<T>(out),
                                  data<float>(softmax));
  });
  return {out, softmax};
}

std::tuple<Tensor, Tensor> forward_meta(const Tensor& q, const Tensor&, const Tensor&, const Tensor&, const OptionalTensor&,
                                        double, bool, double, const Tensor&) {
  return {q.new_empty_symint(q.sym_sizes()),
          q.new_empty_symint({2, q.sym_size(1), q.sym_size(0)}, at::TensorOptions(at::kFloat))};
}

std::tuple<Tensor, Tensor, Tensor> backward(const Tensor& out_gradient_, const Tensor& q_, const Tensor& k_,
                                            const Tensor& v_, const Tensor& out, const Tensor& softmax,
                                            const Tensor& cu_seqlens, const OptionalTensor& bias, double scale, bool causal,
                                            double p, const Tensor& seeds) {
  Tensor q = rows_contiguous(q_), k = rows_contiguous(k_), v = rows_contiguous(v_),
         out_gradient = rows_contiguous(out_gradient_);
  AttentionShape shape = shape_of(q, k, v, cu_seqlens, bias, scale, causal, dropout_of("attention", p, seeds, 0));
  Tensor dq = at::empty(q.sizes(), q.options()), dk = at::empty(k.sizes(), k.options()),
         dv = at::empty(v.sizes(), v.options());
  with_element_type("attention", q, [&]<class T>(T) {
    kernels::attention_backward<T>(shape, heads<const T>(q), heads<const T>(k), heads<const T>(v), heads<const T>(out),
                                   data<float>(softmax), heads<const T>(out_gradient),
                                   {heads<T>(dq), heads<T>(dk), heads<T>(dv)});
  });
  return {dq, dk, dv};
}

std::tuple<Tensor, Tensor, Tensor> backward_meta(const Tensor&, const Tensor& q, const Tensor& k, const Tensor& v,
                                                 const Tensor&, const Tensor&, const Tensor&, const OptionalTensor&, double,
                                                 bool, double, const Tensor&) {
  return {q.new_empty_symint(q.sym_sizes()), k.new_empty_symint(k.sym_sizes()), v.new_empty_symint(v.sym_sizes())};
}

struct Attention : torch::autograd::Function<Attention> {
  static Tensor forward(torch::autograd::AutogradContext* ctx, const Tensor& q, const Tensor& k, const Tensor& v,
                        const Tensor& cu_seqlens, const OptionalTensor& bias, double scale, bool causal, double p) {
    at::AutoDispatchBelowADInplaceOrView below;
    Tensor seeds = draw_seeds(1, p > 0);
    static auto op = operator_named<decltype(ops::forward)>("trireme::attention_forward");
    auto [out, softmax] = op.call(q, k, v, cu_seqlens, bias, scale, causal, p, seeds);
    ctx->save_for_backward({q, k, v, out, softmax, cu_seqlens, or_undefined(bias), seeds});
    ctx->saved_data["scale"] = scale;
    ctx->saved_data["causal"] = causal;
    ctx->saved_data["p"] = p;
    return out;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 torch::autograd::variable_list gradients) {
    auto saved = ctx->get_saved_variables();
    static auto op = operator_named<decltype(ops::backward)>("trireme::attention_backward");
    auto [dq, dk, dv] = op.call(gradients[0], saved[0], saved[1], saved[2], saved[3], saved[4], saved[5], or_none(saved[6]),
                                ctx->saved_data["scale"].toDouble(), ctx->saved_data["causal"].toBool(),
                                ctx->saved_data["p"].toDouble(), saved[7]);
    return {dq, dk, dv, Tensor(), Tensor(), Tensor(), Tensor(), Tensor()};
  }
};

Tensor attention_front(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& cu_seqlens,
                       const OptionalTensor& bias, double scale, bool causal, double dropout_p) {
  TORCH_CHECK_NOT_IMPLEMENTED(!(bias && bias->requires_grad()),
                              "attention: there is no gradient for the bias; use torch's attention");
  return Attention::apply(q, k, v, cu_seqlens, bias, scale, causal, dropout_p);
}

Tensor attention_autocast(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& cu_seqlens,
                          const OptionalTensor& bias, double scale, bool causal, double dropout_p) {
  NoAutocast guard;
  return attention(autocast(q), autocast(k), autocast(v), cu_seqlens, bias, scale, causal, dropout_p);
}

}  // namespace

Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& cu_seqlens, const OptionalTensor& bias,
                 double scale, bool causal, double dropout_p) {
  static auto op = operator_named<decltype(attention)>("trireme::attention");
  return op.call(q, k, v, cu_seqlens, bias, scale, causal, dropout_p);
}

TORCH_LIBRARY_FRAGMENT(trireme, m) {
  m.def(
      "attention_forward(Tensor q, Tensor k, Tensor v, Tensor cu_seqlens, Tensor? bias, float scale, bool causal, float p, "
      "Tensor seeds) -> "
      "(Tensor, Tensor)");
  m.def(
      "attention_backward(Tensor out_gradient, Tensor q, Tensor k, Tensor v, Tensor out, Tensor softmax, Tensor cu_seqlens, "
      "Tensor? bias, float "
      "scale, bool causal, float p, Tensor seeds) -> (Tensor, Tensor, Tensor)");
  m.def(
      "attention(Tensor q, Tensor k, Tensor v, Tensor cu_seqlens, Tensor? bias=None, *, float scale, bool causal=False, "
      "float dropout_p=0.) "
      "-> Tensor");
}
TORCH_LIBRARY_IMPL(trireme, CPU, m) {
  m.impl("attention_forward", &forward);
  m.impl("attention_backward", &backward);
}
TORCH_LIBRARY_IMPL(trireme, Meta, m) {
  m.impl("attention_forward", &forward_meta);
  m.impl("attention_backward", &backward_meta);
}
TORCH_LIBRARY_IMPL(trireme, CompositeImplicitAutograd, m) { m.impl("attention", &attention_front); }
TORCH_LIBRARY_IMPL(trireme, AutocastCPU, m) { m.impl("attention", &attention_autocast); }
TORCH_LIBRARY_IMPL(trireme, Autograd, m) { refuse_derivatives(m, {"attention_forward", "attention_backward"}); }

}  // namespace trireme::ops
