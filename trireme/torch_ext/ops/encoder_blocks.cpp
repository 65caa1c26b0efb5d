// The two halves of an encoder layer, each one node of the autograd graph: what lies between two matrix products is one pass
// over memory, the LayerNorm's input takes the place of the product it was made from, and the gradient of the residual is
// what the products for the input's gradient add to.
#include "trireme/kernels/attention.h"
#include "trireme/kernels/bias_gelu.h"
#include "trireme/kernels/residual_layer_norm.h"
#include "trireme/torch_ext/ops/autograd.h"
#include "trireme/torch_ext/ops/ops.h"
#include "trireme/torch_ext/ops/products.h"
#include "trireme/torch_ext/ops/tensors.h"

namespace trireme::ops {

namespace {

using at::Tensor;
using at::TensorList;

at::TensorOptions floats() { return at::TensorOptions(at::kFloat); }

// ---- dropout(h + bias) + residual, LayerNorm: how both blocks end ----

struct Normed {
  Tensor y, z, mean, rstd;
};

// z takes h's memory.
Normed add_and_norm(const Tensor& h, const Tensor& bias, const Tensor& residual, const Tensor& gamma, const Tensor& beta,
                    double eps, const kernels::Dropout& dropout) {
  Normed to{at::empty_like(h), h, at::empty({h.size(0)}, floats()), at::empty({h.size(0)}, floats())};
  Tensor bias_f = as_float(bias), gamma_f = as_float(gamma), beta_f = as_float(beta);
  with_element_type("residual_layer_norm", h, [&]<class T>(T) {
    kernels::residual_layer_norm_forward<T>({.x = data<T>(h),
                                             .bias = data<float>(bias_f),
                                             .residual = data<T>(residual),
                                             .gamma = data<float>(gamma_f),
                                             .beta = data<float>(beta_f),
                                             .z = data<T>(h),
                                             .y = data<T>(to.y),
                                             .mean = data<float>(to.mean),
                                             .rstd = data<float>(to.rstd),
                                             .rows = h.size(0),
                                             .H = h.size(1),
                                             .eps = static_cast<float>(eps),
                                             .dropout = dropout});
  });
  return to;
}

struct NormGradients {
  Tensor residual, h, bias, gamma, beta;
};

NormGradients add_and_norm_backward(const Tensor& dy_, const Tensor& z, const Tensor& mean, const Tensor& rstd,
                                    const Tensor& gamma, const kernels::Dropout& dropout) {
  Tensor dy = dy_.contiguous(), gamma_f = as_float(gamma), dz = at::empty_like(z),
         dh = dropout.active() ? at::empty_like(z) : dz;
  NormGradients to{dz, dh, at::empty({z.size(1)}, floats()), at::empty({z.size(1)}, floats()),
                   at::empty({z.size(1)}, floats())};
  with_element_type("residual_layer_norm", z, [&]<class T>(T) {
    kernels::residual_layer_norm_backward<T>({.dy = data<T>(dy),
                                              .z = data<T>(z),
                                              .mean = data<float>(mean),
                                              .rstd = data<float>(rstd),
                                              .gamma = data<float>(gamma_f),
                                              .dz = data<T>(dz),
                                              .dx = data<T>(dh),
                                              .dbias = data<float>(to.bias),
                                              .dgamma = data<float>(to.gamma),
                                              .dbeta = data<float>(to.beta),
                                              .rows = z.size(0),
                                              .H = z.size(1),
                                              .dropout = dropout});
  });
  return to;
}

// A gradient as its parameter's type.
Tensor like_parameter(const Tensor& gradient, const Tensor& parameter) { return gradient.to(parameter.scalar_type()); }

// d(x W^T)/dW, or nothing where it is not wanted. (In a set of wanted gradients, argument 0 is x, and the weights follow.)
Tensor weight_gradient(const Tensor& output_gradient, const Tensor& x, bool wanted) {
  return wanted ? product(output_gradient.t(), x) : at::empty({0}, x.options());
}

// A weight by the name that docs/ops.md has for it: W [outputs, inputs], of x's type, or a vector.
struct WeightShape {
  const char* name;
  std::vector<c10::SymInt> sizes;
};

void check_count(const char* op, const Tensor& x, TensorList weights, size_t count) {
  TORCH_CHECK(x.dim() == 2, op, ": x must be [tokens, hidden]; it has ", x.dim(), " dimensions");
  TORCH_CHECK(weights.size() == count, op, ": ", weights.size(), " weights were given, ", count, " are needed");
  for (const Tensor& weight : weights) TORCH_CHECK(weight.defined(), op, ": a weight is undefined");
}

void check_shapes(const char* op, const Tensor& x, TensorList weights, const std::vector<WeightShape>& shapes) {
  for (size_t i = 0; i < weights.size(); ++i) {
    check_parameter(op, shapes[i].name, weights[i], shapes[i].sizes);
    TORCH_CHECK(weights[i].dim() == 1 || weights[i].scalar_type() == x.scalar_type(), op, ": ", shapes[i].name, " is ",
                weights[i].scalar_type(), " and x ", x.scalar_type(), "; they must be the same");
  }
}

// ---- Self-attention ----

enum SelfAttentionWeight { kWq, kBq, kWk, kBk, kWv, kBv, kWo, kBo, kAttentionGamma, kAttentionBeta, kSelfAttentionWeights };

void check_self_attention(const Tensor& x, TensorList weights) {
  check_count("self_attention_block", x, weights, kSelfAttentionWeights);
  const c10::SymInt H = x.sym_size(1);
  check_shapes("self_attention_block", x, weights,
               {{"W_q", {H, H}},
                {"b_q", {H}},
                {"W_k", {H, H}},
                {"b_k", {H}},
                {"W_v", {H, H}},
                {"b_v", {H}},
                {"W_o", {H, H}},
                {"b_o", {H}},
                {"gamma", {H}},
                {"beta", {H}}});
}

// Biases as floats, kept alive beside the shape that points to them.
struct BlockShape {
  kernels::AttentionShape shape;
  std::array<Tensor, 3> biases;
};

BlockShape block_shape(const Tensor& x, TensorList weights, const Tensor& cu_seqlens, int64_t heads,
                       const kernels::Dropout& dropout) {
  TORCH_CHECK(heads > 0 && x.size(1) % heads == 0, "self_attention_block: a hidden size of ", x.size(1),
              " cannot be divided into ", heads, " heads");
  BlockShape block;
  block.biases = {as_float(weights[kBq]), as_float(weights[kBk]), as_float(weights[kBv])};
  kernels::AttentionShape& shape = block.shape;
  shape.cu_seqlens = bounds_of("self_attention_block", cu_seqlens, x.size(0));
  shape.heads = shape.kv_heads = heads;
  shape.head_size = x.size(1) / heads;
  shape.scale = 1 / std::sqrt(static_cast<float>(shape.head_size));
  shape.q_bias = data<float>(block.biases[0]);
  shape.k_bias = data<float>(block.biases[1]);
  shape.v_bias = data<float>(block.biases[2]);
  shape.dropout = dropout;
  return block;
}

// Part i of [T, 3 H] as heads.
template <class T>
kernels::Heads<T> part(const Tensor& qkv, int64_t i, int64_t head_size) {
  return {data<std::remove_const_t<T>>(qkv) + i * qkv.size(1) / 3, qkv.size(1), head_size};
}

template <class T>
kernels::Heads<T> whole(const Tensor& x, int64_t head_size) {
  return {data<std::remove_const_t<T>>(x), x.size(1), head_size};
}

using SelfAttentionResult = std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor>;

// y, and what the backward pass needs: qkv, context, softmax, z, mean, rstd.
SelfAttentionResult self_attention_forward(const Tensor& x_, TensorList weights, const Tensor& cu_seqlens, int64_t heads,
                                           double attention_p, double hidden_p, double eps, const Tensor& seeds) {
  NoAutocast guard;
  check_self_attention(x_, weights);
  const kernels::Dropout hidden = dropout_of("self_attention_block", hidden_p, seeds, 1);
  Tensor x = x_.contiguous();
  const int64_t tokens = x.size(0), H = x.size(1);
  const BlockShape block =
      block_shape(x, weights, cu_seqlens, heads, dropout_of("self_attention_block", attention_p, seeds, 0));
  const int64_t size = block.shape.head_size;
  Tensor qkv = at::empty({tokens, 3 * H}, x.options()), context = at::empty_like(x),
         softmax = at::empty({2, heads, tokens}, floats());
  for (int i = 0; i < 3; ++i) multiply(x, weights[2 * i].t(), qkv.narrow(1, i * H, H));
  with_element_type("self_attention_block", x, [&]<class T>(T) {
    kernels::attention_forward<T>(block.shape, part<const T>(qkv, 0, size), part<const T>(qkv, 1, size),
                                  part<const T>(qkv, 2, size), whole<T>(context, size), data<float>(softmax));
  });
  Normed end = add_and_norm(product(context, weights[kWo].t()), weights[kBo], x, weights[kAttentionGamma],
                            weights[kAttentionBeta], eps, hidden);
  return {end.y, qkv, context, softmax, end.z, end.mean, end.rstd};
}

SelfAttentionResult self_attention_forward_meta(const Tensor& x, TensorList weights, const Tensor&, int64_t heads, double, double,
                                                double, const Tensor&) {
  check_self_attention(x, weights);
  auto rows = x.sym_size(0);
  auto like = [&] { return x.new_empty_symint(x.sym_sizes()); };
  auto stats = [&] { return x.new_empty_symint({rows}, floats()); };
  return {like(), x.new_empty_symint({rows, x.sym_size(1) * 3}),
          like(), x.new_empty_symint({2, c10::SymInt(heads), rows}, floats()),
          like(), stats(),
          stats()};
}

// The gradients of x and of the weights.
std::vector<Tensor> self_attention_backward(const Tensor& dy, const Tensor& x_, TensorList weights, const Tensor& qkv,
                                            const Tensor& context, const Tensor& softmax, const Tensor& z,
                                            const Tensor& mean, const Tensor& rstd, const Tensor& cu_seqlens, int64_t heads,
                                            double attention_p, double hidden_p, const Tensor& seeds, ArgumentSet wanted) {
  NoAutocast guard;
  Tensor x = x_.contiguous();
  const int64_t H = x.size(1);
  const BlockShape block =
      block_shape(x, weights, cu_seqlens, heads, dropout_of("self_attention_block", attention_p, seeds, 0));
  const int64_t size = block.shape.head_size;
  NormGradients end = add_and_norm_backward(dy, z, mean, rstd, weights[kAttentionGamma],
                                            dropout_of("self_attention_block", hidden_p, seeds, 1));
  Tensor output_weight = weight_gradient(end.h, context, has(wanted, 1 + kWo));
  Tensor d_context = product(end.h, weights[kWo]);
  end.h = Tensor();
  Tensor d_qkv = at::empty_like(qkv), d_bias = at::empty({3, H}, floats());
  with_element_type("self_attention_block", x, [&]<class T>(T) {
    float* bias = data<float>(d_bias);
    kernels::attention_backward<T>(
        block.shape, part<const T>(qkv, 0, size), part<const T>(qkv, 1, size), part<const T>(qkv, 2, size),
        whole<const T>(context, size), data<float>(softmax), whole<const T>(d_context, size),
        {part<T>(d_qkv, 0, size), part<T>(d_qkv, 1, size), part<T>(d_qkv, 2, size), bias, bias + H, bias + 2 * H});
  });
  std::vector<Tensor> gradients(1 + kSelfAttentionWeights);
  gradients[0] = end.residual;
  for (int i = 0; i < 3; ++i) {
    Tensor d_part = d_qkv.narrow(1, i * H, H);
    if (has(wanted, 0)) multiply(d_part, weights[2 * i], gradients[0], Into::sum);
    gradients[1 + 2 * i] = weight_gradient(d_part, x, has(wanted, 1 + 2 * i));
    gradients[2 + 2 * i] = like_parameter(d_bias[i].clone(), weights[2 * i + 1]);
  }
  gradients[1 + kWo] = output_weight;
  gradients[1 + kBo] = like_parameter(end.bias, weights[kBo]);
  gradients[1 + kAttentionGamma] = like_parameter(end.gamma, weights[kAttentionGamma]);
  gradients[1 + kAttentionBeta] = like_parameter(end.beta, weights[kAttentionBeta]);
  return gradients;
}

std::vector<Tensor> gradients_meta(const Tensor& x, TensorList weights, ArgumentSet wanted) {
  std::vector<Tensor> gradients{x.new_empty_symint(x.sym_sizes())};
  for (const Tensor& weight : weights) {
    const bool is_skipped = weight.dim() == 2 && !has(wanted, gradients.size());
    gradients.push_back(is_skipped ? x.new_empty({0}) : weight.new_empty_symint(weight.sym_sizes()));
  }
  return gradients;
}

std::vector<Tensor> self_attention_backward_meta(const Tensor&, const Tensor& x, TensorList weights, const Tensor&,
                                                 const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                                                 const Tensor&, int64_t, double, double, const Tensor&, ArgumentSet wanted) {
  return gradients_meta(x, weights, wanted);
}

// ---- Feed-forward ----

enum FeedForwardWeight { kW1, kB1, kW2, kB2, kFeedForwardGamma, kFeedForwardBeta, kFeedForwardWeights };

void check_feed_forward(const Tensor& x, TensorList weights) {
  check_count("feed_forward_block", x, weights, kFeedForwardWeights);
  const Tensor& w1 = weights[kW1];
  const c10::SymInt H = x.sym_size(1), inner = w1.dim() == 0 ? c10::SymInt(1) : w1.sym_size(0);
  check_shapes("feed_forward_block", x, weights,
               {{"W_1", {inner, H}}, {"b_1", {inner}}, {"W_2", {H, inner}}, {"b_2", {H}}, {"gamma", {H}}, {"beta", {H}}});
}

using FeedForwardResult = std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor>;

kernels::Gelu gelu_form(bool tanh) { return tanh ? kernels::Gelu::tanh : kernels::Gelu::erf; }

// y, and what the backward pass needs: h (before the bias and GELU; what comes out of it is made again), z, mean, rstd.
FeedForwardResult feed_forward_forward(const Tensor& x_, TensorList weights, bool tanh, double hidden_p, double eps,
                                       const Tensor& seeds) {
  NoAutocast guard;
  check_feed_forward(x_, weights);
  const kernels::Dropout hidden = dropout_of("feed_forward_block", hidden_p, seeds, 0);
  Tensor x = x_.contiguous();
  Tensor h = product(x, weights[kW1].t()), g = at::empty_like(h), bias = as_float(weights[kB1]);
  with_element_type("feed_forward_block", x, [&]<class T>(T) {
    kernels::bias_gelu_forward<T>({.x = data<T>(h),
                                   .bias = data<float>(bias),
                                   .y = data<T>(g),
                                   .rows = h.size(0),
                                   .H = h.size(1),
                                   .form = gelu_form(tanh)});
  });
  Normed end = add_and_norm(product(g, weights[kW2].t()), weights[kB2], x, weights[kFeedForwardGamma],
                            weights[kFeedForwardBeta], eps, hidden);
  return {end.y, h, end.z, end.mean, end.rstd};
}

FeedForwardResult feed_forward_forward_meta(const Tensor& x, TensorList weights, bool, double, double, const Tensor&) {
  check_feed_forward(x, weights);
  auto rows = x.sym_size(0);
  auto like = [&] { return x.new_empty_symint(x.sym_sizes()); };
  auto stats = [&] { return x.new_empty_symint({rows}, floats()); };
  return {like(), x.new_empty_symint({rows, weights[kW1].sym_size(0)}), like(), stats(), stats()};
}

std::vector<Tensor> feed_forward_backward(const Tensor& dy, const Tensor& x_, TensorList weights, const Tensor& h,
                                          const Tensor& z, const Tensor& mean, const Tensor& rstd, bool tanh, double hidden_p,
                                          const Tensor& seeds, ArgumentSet wanted) {
  NoAutocast guard;
  Tensor x = x_.contiguous();
  NormGradients end = add_and_norm_backward(dy, z, mean, rstd, weights[kFeedForwardGamma],
                                            dropout_of("feed_forward_block", hidden_p, seeds, 0));
  Tensor d_inner = product(end.h, weights[kW2]);
  const bool wants_w2 = has(wanted, 1 + kW2);
  Tensor g = wants_w2 ? at::empty_like(h) : at::empty({0}, h.options());
  Tensor bias = as_float(weights[kB1]), d_bias = at::empty({h.size(1)}, floats());
  with_element_type("feed_forward_block", x, [&]<class T>(T) {
    kernels::bias_gelu_backward<T>({.dy = data<T>(d_inner),
                                    .x = data<T>(h),
                                    .bias = data<float>(bias),
                                    .dx = data<T>(d_inner),
                                    .y = wants_w2 ? data<T>(g) : nullptr,
                                    .dbias = data<float>(d_bias),
                                    .rows = h.size(0),
                                    .H = h.size(1),
                                    .form = gelu_form(tanh)});
  });
  Tensor w2 = weight_gradient(end.h, g, wants_w2);
  g = end.h = Tensor();
  if (has(wanted, 0)) multiply(d_inner, weights[kW1], end.residual, Into::sum);
  return {end.residual,
          weight_gradient(d_inner, x, has(wanted, 1 + kW1)),
          like_parameter(d_bias, weights[kB1]),
          w2,
          like_parameter(end.bias, weights[kB2]),
          like_parameter(end.gamma, weights[kFeedForwardGamma]),
          like_parameter(end.beta, weights[kFeedForwardBeta])};
}

std::vector<Tensor> feed_forward_backward_meta(const Tensor&, const Tensor& x, TensorList weights, const Tensor&,
                                               const Tensor&, const Tensor&, const Tensor&, bool, double, const Tensor&,
                                               ArgumentSet wanted) {
  return gradients_meta(x, weights, wanted);
}

// ---- Autograd ----

// Gradients for x and the weights, nothing for the `others`.
variable_list as_inputs(std::vector<Tensor> gradients, ArgumentSet wanted, size_t others) {
  variable_list inputs(gradients.size() + others);
  for (size_t i = 0; i < gradients.size(); ++i)
    if (has(wanted, i)) inputs[i] = std::move(gradients[i]);
  return inputs;
}

struct SelfAttentionBlock : torch::autograd::Function<SelfAttentionBlock> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x, const Tensor& wq, const Tensor& bq, const Tensor& wk,
                        const Tensor& bk, const Tensor& wv, const Tensor& bv, const Tensor& wo, const Tensor& bo,
                        const Tensor& gamma, const Tensor& beta, const Tensor& cu_seqlens, int64_t heads, double attention_p,
                        double hidden_p, double eps) {
    at::AutoDispatchBelowADInplaceOrView below;
    Tensor seeds = draw_seeds(2, attention_p > 0 || hidden_p > 0);
    std::vector<Tensor> weights{wq, bq, wk, bk, wv, bv, wo, bo, gamma, beta};
    static auto op = operator_named<decltype(self_attention_forward)>("trireme::self_attention_block_forward");
    auto [y, qkv, context, softmax, z, mean, rstd] =
        op.call(x, weights, cu_seqlens, heads, attention_p, hidden_p, eps, seeds);
    variable_list saved{x};
    saved.insert(saved.end(), weights.begin(), weights.end());
    for (const Tensor& each : {qkv, context, softmax, z, mean, rstd, cu_seqlens, seeds}) saved.push_back(each);
    ctx->save_for_backward(saved);
    ctx->saved_data["heads"] = heads;
    ctx->saved_data["attention_p"] = attention_p;
    ctx->saved_data["hidden_p"] = hidden_p;
    return y;
  }

  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    variable_list saved = ctx->get_saved_variables();
    TensorList all = saved;
    const ArgumentSet wanted = wanted_of(ctx, first_arguments(1 + kSelfAttentionWeights));
    static auto op = operator_named<decltype(self_attention_backward)>("trireme::self_attention_block_backward");
    TensorList weights = all.slice(1, kSelfAttentionWeights), rest = all.slice(1 + kSelfAttentionWeights);
    return as_inputs(op.call(gradients[0], all[0], weights, rest[0], rest[1], rest[2], rest[3], rest[4], rest[5], rest[6],
                             ctx->saved_data["heads"].toInt(), ctx->saved_data["attention_p"].toDouble(),
                             ctx->saved_data["hidden_p"].toDouble(), rest[7], wanted),
                     wanted, 5);
  }
};

struct FeedForwardBlock : torch::autograd::Function<FeedForwardBlock> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x, const Tensor& w1, const Tensor& b1, const Tensor& w2,
                        const Tensor& b2, const Tensor& gamma, const Tensor& beta, bool tanh, double hidden_p, double eps) {
    at::AutoDispatchBelowADInplaceOrView below;
    Tensor seeds = draw_seeds(1, hidden_p > 0);
    std::vector<Tensor> weights{w1, b1, w2, b2, gamma, beta};
    static auto op = operator_named<decltype(feed_forward_forward)>("trireme::feed_forward_block_forward");
    auto [y, h, z, mean, rstd] = op.call(x, weights, tanh, hidden_p, eps, seeds);
    variable_list saved{x};
    saved.insert(saved.end(), weights.begin(), weights.end());
    for (const Tensor& each : {h, z, mean, rstd, seeds}) saved.push_back(each);
    ctx->save_for_backward(saved);
    ctx->saved_data["tanh"] = tanh;
    ctx->saved_data["hidden_p"] = hidden_p;
    return y;
  }

  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    variable_list saved = ctx->get_saved_variables();
    TensorList all = saved;
    const ArgumentSet wanted = wanted_of(ctx, first_arguments(1 + kFeedForwardWeights));
    static auto op = operator_named<decltype(feed_forward_backward)>("trireme::feed_forward_block_backward");
    TensorList weights = all.slice(1, kFeedForwardWeights), rest = all.slice(1 + kFeedForwardWeights);
    return as_inputs(op.call(gradients[0], all[0], weights, rest[0], rest[1], rest[2], rest[3],
                             ctx->saved_data["tanh"].toBool(), ctx->saved_data["hidden_p"].toDouble(), rest[4], wanted),
                     wanted, 3);
  }
};

// ---- Fronts ----

Tensor self_attention_front(const Tensor& x, TensorList w, const Tensor& cu_seqlens, int64_t heads, double attention_p,
                            double hidden_p, double eps) {
  check_count("self_attention_block", x, w, kSelfAttentionWeights);
  return SelfAttentionBlock::apply(x, w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7], w[8], w[9], cu_seqlens, heads,
                                   attention_p, hidden_p, eps);
}

Tensor feed_forward_front(const Tensor& x, TensorList w, bool tanh, double hidden_p, double eps) {
  check_count("feed_forward_block", x, w, kFeedForwardWeights);
  return FeedForwardBlock::apply(x, w[0], w[1], w[2], w[3], w[4], w[5], tanh, hidden_p, eps);
}

// x and the matrices in autocast's type, as linear takes them; the vectors stay as they are.
std::vector<Tensor> autocast_matrices(TensorList weights) {
  std::vector<Tensor> cast;
  for (const Tensor& weight : weights) cast.push_back(weight.dim() == 2 ? autocast(weight) : weight);
  return cast;
}

Tensor self_attention_autocast(const Tensor& x, TensorList weights, const Tensor& cu_seqlens, int64_t heads,
                               double attention_p, double hidden_p, double eps) {
  NoAutocast guard;
  return self_attention_block(autocast(x), autocast_matrices(weights), cu_seqlens, heads, attention_p, hidden_p, eps);
}

Tensor feed_forward_autocast(const Tensor& x, TensorList weights, bool tanh, double hidden_p, double eps) {
  NoAutocast guard;
  return feed_forward_block(autocast(x), autocast_matrices(weights), tanh, hidden_p, eps);
}

}  // namespace

Tensor self_attention_block(const Tensor& x, TensorList weights, const Tensor& cu_seqlens, int64_t heads, double attention_p,
                            double hidden_p, double eps) {
  static auto op = operator_named<decltype(self_attention_block)>("trireme::self_attention_block");
  return op.call(x, weights, cu_seqlens, heads, attention_p, hidden_p, eps);
}

Tensor feed_forward_block(const Tensor& x, TensorList weights, bool tanh, double hidden_p, double eps) {
  static auto op = operator_named<decltype(feed_forward_block)>("trireme::feed_forward_block");
  return op.call(x, weights, tanh, hidden_p, eps);
}

TORCH_LIBRARY_FRAGMENT(trireme, m) {
  m.def(
      "self_attention_block_forward(Tensor x, Tensor[] weights, Tensor cu_seqlens, int heads, float attention_p, float "
      "hidden_p, float eps, "
      "Tensor seeds) -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)");
  m.def(
      "self_attention_block_backward(Tensor y_gradient, Tensor x, Tensor[] weights, Tensor qkv, Tensor context, Tensor "
      "softmax, Tensor z, Tensor "
      "mean, Tensor rstd, Tensor cu_seqlens, int heads, float attention_p, float hidden_p, Tensor seeds, int wanted) -> "
      "Tensor[]");
  m.def(
      "self_attention_block(Tensor x, Tensor[] weights, Tensor cu_seqlens, int heads, float attention_p, float hidden_p, "
      "float eps) -> "
      "Tensor");
  m.def(
      "feed_forward_block_forward(Tensor x, Tensor[] weights, bool tanh, float hidden_p, float eps, Tensor seeds) -> "
      "(Tensor, Tensor, "
      "Tensor, Tensor, Tensor)");
  m.def(
      "feed_forward_block_backward(Tensor y_gradient, Tensor x, Tensor[] weights, Tensor h, Tensor z, Tensor "
      "mean, Tensor rstd, "
      "bool tanh, float hidden_p, Tensor seeds, int wanted) -> Tensor[]");
  m.def("feed_forward_block(Tensor x, Tensor[] weights, bool tanh, float hidden_p, float eps) -> Tensor");
}
TORCH_LIBRARY_IMPL(trireme, CPU, m) {
  m.impl("self_attention_block_forward", &self_attention_forward);
  m.impl("self_attention_block_backward", &self_attention_backward);
  m.impl("feed_forward_block_forward", &feed_forward_forward);
  m.impl("feed_forward_block_backward", &feed_forward_backward);
}
TORCH_LIBRARY_IMPL(trireme, Meta, m) {
  m.impl("self_attention_block_forward", &self_attention_forward_meta);
  m.impl("self_attention_block_backward", &self_attention_backward_meta);
  m.impl("feed_forward_block_forward", &feed_forward_forward_meta);
  m.impl("feed_forward_block_backward", &feed_forward_backward_meta);
}
TORCH_LIBRARY_IMPL(trireme, CompositeImplicitAutograd, m) {
  m.impl("self_attention_block", &self_attention_front);
  m.impl("feed_forward_block", &feed_forward_front);
}
TORCH_LIBRARY_IMPL(trireme, AutocastCPU, m) {
  m.impl("self_attention_block", &self_attention_autocast);
  m.impl("feed_forward_block", &feed_forward_autocast);
}
TORCH_LIBRARY_IMPL(trireme, Autograd, m) {
  refuse_derivatives(m, {"self_attention_block_forward", "self_attention_block_backward", "feed_forward_block_forward",
                         "feed_forward_block_backward"});
}

}  // namespace trireme::ops
