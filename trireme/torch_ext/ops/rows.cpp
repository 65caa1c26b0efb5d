// Operators over rows of activations: LayerNorm, GELU, dropout and what is fused with them. x may have any leading
// dimensions, its last one is the row; parameters are float32 or bfloat16, whatever x is.
//
// Gradients of parameters are summed in fp32 and leave as that; autograd rounds them to the parameter's type.
#include "trireme/kernels/bias_dropout_residual.h"
#include "trireme/kernels/bias_gelu.h"
#include "trireme/kernels/dropout.h"
#include "trireme/kernels/layer_norm.h"
#include "trireme/kernels/residual_layer_norm.h"
#include "trireme/torch_ext/ops/autograd.h"
#include "trireme/torch_ext/ops/ops.h"
#include "trireme/torch_ext/ops/tensors.h"

namespace trireme::ops {

namespace {

using at::Tensor;

// ---- Rows ----

struct Shape {
  int64_t rows, H;
};

Shape shape_of(const char* op, const Tensor& x) {
  TORCH_CHECK(x.dim() >= 1 && x.size(-1) >= 1, op, ": x is ", x.sizes(), "; its rows must have at least one element");
  return {x.numel() / x.size(-1), x.size(-1)};
}

// Without a gradient's values: all that torch.compile asks for.
Tensor like_meta(const Tensor& x) { return x.new_empty_symint(x.sym_sizes()); }
Tensor per_row_meta(const Tensor& x) {
  c10::SymInt rows = 1;
  for (int64_t i = 0; i + 1 < x.dim(); ++i) rows *= x.sym_size(i);
  return x.new_empty_symint({rows}, at::TensorOptions(at::kFloat));
}
Tensor per_column_meta(const Tensor& x, bool wanted) {
  return wanted ? x.new_empty_symint({x.sym_size(-1)}, at::TensorOptions(at::kFloat)) : nothing_like(x);
}

Tensor like(const Tensor& x) { return at::empty(x.sizes(), x.options()); }
Tensor per_row(const Shape& shape) { return at::empty({shape.rows}, at::kFloat); }
Tensor per_column(const Shape& shape, bool wanted) { return wanted ? at::empty({shape.H}, at::kFloat) : nothing(); }

// nullptr for `nothing`.
float* sum_or_null(const Tensor& sum, bool wanted) { return wanted ? data<float>(sum) : nullptr; }

void check_like_x(const char* op, const Tensor& x, const OptionalTensor& residual) {
  TORCH_CHECK(!is_given(residual) || (residual->sizes() == x.sizes() && residual->scalar_type() == x.scalar_type()), op,
              ": the residual is ", is_given(residual) ? residual->sizes() : x.sizes(), " of ",
              is_given(residual) ? residual->scalar_type() : x.scalar_type(), ", x ", x.sizes(), " of ", x.scalar_type(),
              "; they must be the same");
}

OptionalTensor contiguous(const OptionalTensor& x) { return is_given(x) ? OptionalTensor(x->contiguous()) : std::nullopt; }

// ---- LayerNorm ----

std::tuple<Tensor, Tensor, Tensor> layer_norm_forward(const Tensor& x_, const OptionalTensor& gamma_,
                                                      const OptionalTensor& beta_, double eps) {
  Shape shape = shape_of("layer_norm", x_);
  OptionalTensor gamma = row_parameter("layer_norm", "gamma", gamma_, shape.H),
                 beta = row_parameter("layer_norm", "beta", beta_, shape.H);
  Tensor x = x_.contiguous(), y = like(x), mean = per_row(shape), rstd = per_row(shape);
  with_element_type("layer_norm", x, [&]<class T>(T) {
    kernels::layer_norm_forward<T>({.x = data<T>(x),
                                    .gamma = data<float>(gamma),
                                    .beta = data<float>(beta),
                                    .y = data<T>(y),
                                    .mean = data<float>(mean),
                                    .rstd = data<float>(rstd),
                                    .rows = shape.rows,
                                    .H = shape.H,
                                    .eps = static_cast<float>(eps)});
  });
  return {y, mean, rstd};
}

std::tuple<Tensor, Tensor, Tensor> layer_norm_forward_meta(const Tensor& x, const OptionalTensor&, const OptionalTensor&,
                                                           double) {
  return {like_meta(x), per_row_meta(x), per_row_meta(x)};
}

enum LayerNormArgument { kNormX, kNormGamma, kNormBeta };

// Of x, gamma and beta.
std::tuple<Tensor, Tensor, Tensor> layer_norm_backward(const Tensor& dy_, const Tensor& x_, const OptionalTensor& gamma_,
                                                       const Tensor& mean, const Tensor& rstd, ArgumentSet wanted) {
  Shape shape = shape_of("layer_norm", x_);
  OptionalTensor gamma = as_float(gamma_);
  Tensor dy = dy_.contiguous(), x = x_.contiguous(), dx = like(x);
  Tensor dgamma = per_column(shape, has(wanted, kNormGamma)), dbeta = per_column(shape, has(wanted, kNormBeta));
  with_element_type("layer_norm", x, [&]<class T>(T) {
    kernels::layer_norm_backward<T>({.dy = data<T>(dy),
                                     .x = data<T>(x),
                                     .mean = data<float>(mean),
                                     .rstd = data<float>(rstd),
                                     .gamma = data<float>(gamma),
                                     .dx = data<T>(dx),
                                     .dgamma = sum_or_null(dgamma, has(wanted, kNormGamma)),
                                     .dbeta = sum_or_null(dbeta, has(wanted, kNormBeta)),
                                     .rows = shape.rows,
                                     .H = shape.H});
  });
  return {dx, dgamma, dbeta};
}

std::tuple<Tensor, Tensor, Tensor> layer_norm_backward_meta(const Tensor&, const Tensor& x, const OptionalTensor&,
                                                            const Tensor&, const Tensor&, ArgumentSet wanted) {
  return {like_meta(x), per_column_meta(x, has(wanted, kNormGamma)), per_column_meta(x, has(wanted, kNormBeta))};
}

struct LayerNorm : torch::autograd::Function<LayerNorm> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x, const OptionalTensor& gamma, const OptionalTensor& beta,
                        double eps) {
    at::AutoDispatchBelowADInplaceOrView below;
    static auto op = operator_named<decltype(layer_norm_forward)>("trireme::layer_norm_forward");
    auto [y, mean, rstd] = op.call(x, gamma, beta, eps);
    ctx->save_for_backward({x, or_undefined(gamma), mean, rstd});
    ctx->saved_data["given"] = given_of({x, gamma, beta});
    return y;
  }

  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    variable_list saved = ctx->get_saved_variables();
    const ArgumentSet wanted = wanted_of(ctx, ctx->saved_data["given"].toInt());
    static auto op = operator_named<decltype(layer_norm_backward)>("trireme::layer_norm_backward");
    auto [dx, dgamma, dbeta] = op.call(gradients[0], saved[0], or_none(saved[1]), saved[2], saved[3], wanted);
    return gradients_for(4, wanted, {dx, dgamma, dbeta});
  }
};

// ---- Bias and GELU ----

kernels::Gelu gelu_form(bool tanh) { return tanh ? kernels::Gelu::tanh : kernels::Gelu::erf; }

Tensor bias_gelu_forward(const Tensor& x_, const OptionalTensor& bias_, bool tanh) {
  Shape shape = shape_of("bias_gelu", x_);
  OptionalTensor bias = row_parameter("bias_gelu", "the bias", bias_, shape.H);
  Tensor x = x_.contiguous(), y = like(x);
  with_element_type("bias_gelu", x, [&]<class T>(T) {
    kernels::bias_gelu_forward<T>({.x = data<T>(x),
                                   .bias = data<float>(bias),
                                   .y = data<T>(y),
                                   .rows = shape.rows,
                                   .H = shape.H,
                                   .form = gelu_form(tanh)});
  });
  return y;
}

Tensor bias_gelu_forward_meta(const Tensor& x, const OptionalTensor&, bool) { return like_meta(x); }

enum BiasGeluArgument { kGeluX, kGeluBias };

// Of x and the bias.
std::tuple<Tensor, Tensor> bias_gelu_backward(const Tensor& dy_, const Tensor& x_, const OptionalTensor& bias_, bool tanh,
                                              ArgumentSet wanted) {
  Shape shape = shape_of("bias_gelu", x_);
  OptionalTensor bias = as_float(bias_);
  Tensor dy = dy_.contiguous(), x = x_.contiguous(), dx = like(x), dbias = per_column(shape, has(wanted, kGeluBias));
  with_element_type("bias_gelu", x, [&]<class T>(T) {
    kernels::bias_gelu_backward<T>({.dy = data<T>(dy),
                                    .x = data<T>(x),
                                    .bias = data<float>(bias),
                                    .dx = data<T>(dx),
                                    .dbias = sum_or_null(dbias, has(wanted, kGeluBias)),
                                    .rows = shape.rows,
                                    .H = shape.H,
                                    .form = gelu_form(tanh)});
  });
  return {dx, dbias};
}

std::tuple<Tensor, Tensor> bias_gelu_backward_meta(const Tensor&, const Tensor& x, const OptionalTensor&, bool,
                                                   ArgumentSet wanted) {
  return {like_meta(x), per_column_meta(x, has(wanted, kGeluBias))};
}

struct BiasGelu : torch::autograd::Function<BiasGelu> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x, const OptionalTensor& bias, bool tanh) {
    at::AutoDispatchBelowADInplaceOrView below;
    static auto op = operator_named<decltype(bias_gelu_forward)>("trireme::bias_gelu_forward");
    ctx->save_for_backward({x, or_undefined(bias)});
    ctx->saved_data["tanh"] = tanh;
    ctx->saved_data["given"] = given_of({x, bias});
    return op.call(x, bias, tanh);
  }

  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    variable_list saved = ctx->get_saved_variables();
    const ArgumentSet wanted = wanted_of(ctx, ctx->saved_data["given"].toInt());
    static auto op = operator_named<decltype(bias_gelu_backward)>("trireme::bias_gelu_backward");
    auto [dx, dbias] = op.call(gradients[0], saved[0], or_none(saved[1]), ctx->saved_data["tanh"].toBool(), wanted);
    return gradients_for(3, wanted, {dx, dbias});
  }
};

// ---- Bias, dropout, residual connection, LayerNorm ----

constexpr char kResidualNorm[] = "bias_dropout_residual_layer_norm";

// y, and what the backward pass needs: z, LayerNorm's input, mean and rstd.
std::tuple<Tensor, Tensor, Tensor, Tensor> residual_norm_forward(const Tensor& x_, const OptionalTensor& bias_,
                                                                 const OptionalTensor& residual_,
                                                                 const OptionalTensor& gamma_, const OptionalTensor& beta_,
                                                                 double p, double eps, const Tensor& seeds) {
  Shape shape = shape_of(kResidualNorm, x_);
  check_like_x(kResidualNorm, x_, residual_);
  OptionalTensor bias = row_parameter(kResidualNorm, "the bias", bias_, shape.H),
                 gamma = row_parameter(kResidualNorm, "gamma", gamma_, shape.H),
                 beta = row_parameter(kResidualNorm, "beta", beta_, shape.H), residual = contiguous(residual_);
  Tensor x = x_.contiguous(), y = like(x), z = like(x), mean = per_row(shape), rstd = per_row(shape);
  with_element_type(kResidualNorm, x, [&]<class T>(T) {
    kernels::residual_layer_norm_forward<T>({.x = data<T>(x),
                                             .bias = data<float>(bias),
                                             .residual = data<T>(residual),
                                             .gamma = data<float>(gamma),
                                             .beta = data<float>(beta),
                                             .z = data<T>(z),
                                             .y = data<T>(y),
                                             .mean = data<float>(mean),
                                             .rstd = data<float>(rstd),
                                             .rows = shape.rows,
                                             .H = shape.H,
                                             .eps = static_cast<float>(eps),
                                             .dropout = dropout_of(kResidualNorm, p, seeds, 0)});
  });
  return {y, z, mean, rstd};
}

std::tuple<Tensor, Tensor, Tensor, Tensor> residual_norm_forward_meta(const Tensor& x, const OptionalTensor&,
                                                                      const OptionalTensor&, const OptionalTensor&,
                                                                      const OptionalTensor&, double, double, const Tensor&) {
  return {like_meta(x), like_meta(x), per_row_meta(x), per_row_meta(x)};
}

enum ResidualNormArgument { kResidualX, kResidualBias, kResidualResidual, kResidualGamma, kResidualBeta };

// Without dropout the residual's gradient is that of x, and an operator may not return one tensor twice.
bool has_own_residual(ArgumentSet wanted, double p) { return has(wanted, kResidualResidual) && p > 0; }

// Of x, the bias, the residual (where it has its own), gamma and beta.
std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> residual_norm_backward(const Tensor& dy_, const Tensor& z,
                                                                          const OptionalTensor& gamma_, const Tensor& mean,
                                                                          const Tensor& rstd, double p, const Tensor& seeds,
                                                                          ArgumentSet wanted) {
  Shape shape = shape_of(kResidualNorm, z);
  OptionalTensor gamma = as_float(gamma_);
  auto sum = [&](ResidualNormArgument i) { return per_column(shape, has(wanted, i)); };
  Tensor dy = dy_.contiguous(), dx = like(z), dz = has_own_residual(wanted, p) ? like(z) : nothing();
  Tensor dbias = sum(kResidualBias), dgamma = sum(kResidualGamma), dbeta = sum(kResidualBeta);
  with_element_type(kResidualNorm, z, [&]<class T>(T) {
    kernels::residual_layer_norm_backward<T>({.dy = data<T>(dy),
                                              .z = data<T>(z),
                                              .mean = data<float>(mean),
                                              .rstd = data<float>(rstd),
                                              .gamma = data<float>(gamma),
                                              .dz = has_own_residual(wanted, p) ? data<T>(dz) : nullptr,
                                              .dx = data<T>(dx),
                                              .dbias = sum_or_null(dbias, has(wanted, kResidualBias)),
                                              .dgamma = sum_or_null(dgamma, has(wanted, kResidualGamma)),
                                              .dbeta = sum_or_null(dbeta, has(wanted, kResidualBeta)),
                                              .rows = shape.rows,
                                              .H = shape.H,
                                              .dropout = dropout_of(kResidualNorm, p, seeds, 0)});
  });
  return {dx, dbias, dz, dgamma, dbeta};
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> residual_norm_backward_meta(const Tensor&, const Tensor& z,
                                                                               const OptionalTensor&, const Tensor&,
                                                                               const Tensor&, double p, const Tensor&,
                                                                               ArgumentSet wanted) {
  auto sum = [&](ResidualNormArgument i) { return per_column_meta(z, has(wanted, i)); };
  return {like_meta(z), sum(kResidualBias), has_own_residual(wanted, p) ? like_meta(z) : nothing_like(z),
          sum(kResidualGamma), sum(kResidualBeta)};
}

struct ResidualNorm : torch::autograd::Function<ResidualNorm> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x, const OptionalTensor& bias, const OptionalTensor& residual,
                        const OptionalTensor& gamma, const OptionalTensor& beta, double p, double eps) {
    at::AutoDispatchBelowADInplaceOrView below;
    Tensor seeds = draw_seeds(1, p > 0);
    static auto op = operator_named<decltype(residual_norm_forward)>("trireme::bias_dropout_residual_layer_norm_forward");
    auto [y, z, mean, rstd] = op.call(x, bias, residual, gamma, beta, p, eps, seeds);
    ctx->save_for_backward({z, or_undefined(gamma), mean, rstd, seeds});
    ctx->saved_data["p"] = p;
    ctx->saved_data["given"] = given_of({x, bias, residual, gamma, beta});
    return y;
  }

  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    variable_list saved = ctx->get_saved_variables();
    const ArgumentSet wanted = wanted_of(ctx, ctx->saved_data["given"].toInt());
    const double p = ctx->saved_data["p"].toDouble();
    static auto op = operator_named<decltype(residual_norm_backward)>("trireme::bias_dropout_residual_layer_norm_backward");
    auto [dx, dbias, dresidual, dgamma, dbeta] =
        op.call(gradients[0], saved[0], or_none(saved[1]), saved[2], saved[3], p, saved[4], wanted);
    return gradients_for(7, wanted, {dx, dbias, has_own_residual(wanted, p) ? dresidual : dx, dgamma, dbeta});
  }
};

// ---- Bias, dropout, residual connection ----

constexpr char kResidual[] = "bias_dropout_residual";

Tensor residual_forward(const Tensor& x_, const OptionalTensor& bias_, const OptionalTensor& residual_, double p,
                        const Tensor& seeds) {
  Shape shape = shape_of(kResidual, x_);
  check_like_x(kResidual, x_, residual_);
  OptionalTensor bias = row_parameter(kResidual, "the bias", bias_, shape.H), residual = contiguous(residual_);
  Tensor x = x_.contiguous(), z = like(x);
  with_element_type(kResidual, x, [&]<class T>(T) {
    kernels::bias_dropout_residual_forward<T>({.x = data<T>(x),
                                               .bias = data<float>(bias),
                                               .residual = data<T>(residual),
                                               .z = data<T>(z),
                                               .rows = shape.rows,
                                               .H = shape.H,
                                               .dropout = dropout_of(kResidual, p, seeds, 0)});
  });
  return z;
}

Tensor residual_forward_meta(const Tensor& x, const OptionalTensor&, const OptionalTensor&, double, const Tensor&) {
  return like_meta(x);
}

// Of x and the bias; the residual's is dz.
std::tuple<Tensor, Tensor> residual_backward(const Tensor& dz_, double p, const Tensor& seeds, ArgumentSet wanted) {
  Shape shape = shape_of(kResidual, dz_);
  Tensor dz = dz_.contiguous(), dx = like(dz), dbias = per_column(shape, has(wanted, kResidualBias));
  with_element_type(kResidual, dz, [&]<class T>(T) {
    kernels::bias_dropout_residual_backward<T>({.dz = data<T>(dz),
                                                .dx = data<T>(dx),
                                                .dbias = sum_or_null(dbias, has(wanted, kResidualBias)),
                                                .rows = shape.rows,
                                                .H = shape.H,
                                                .dropout = dropout_of(kResidual, p, seeds, 0)});
  });
  return {dx, dbias};
}

std::tuple<Tensor, Tensor> residual_backward_meta(const Tensor& dz, double, const Tensor&, ArgumentSet wanted) {
  return {like_meta(dz), per_column_meta(dz, has(wanted, kResidualBias))};
}

struct Residual : torch::autograd::Function<Residual> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x, const OptionalTensor& bias, const OptionalTensor& residual,
                        double p) {
    at::AutoDispatchBelowADInplaceOrView below;
    Tensor seeds = draw_seeds(1, p > 0);
    static auto op = operator_named<decltype(residual_forward)>("trireme::bias_dropout_residual_forward");
    ctx->save_for_backward({seeds});
    ctx->saved_data["p"] = p;
    ctx->saved_data["given"] = given_of({x, bias, residual});
    return op.call(x, bias, residual, p, seeds);
  }

  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    const ArgumentSet wanted = wanted_of(ctx, ctx->saved_data["given"].toInt());
    Tensor dx, dbias;
    if (has(wanted, kResidualX) || has(wanted, kResidualBias)) {
      static auto op = operator_named<decltype(residual_backward)>("trireme::bias_dropout_residual_backward");
      std::tie(dx, dbias) = op.call(gradients[0], ctx->saved_data["p"].toDouble(), ctx->get_saved_variables()[0], wanted);
    }
    return gradients_for(4, wanted, {dx, dbias, gradients[0]});
  }
};

// ---- Dropout ----

// Its own backward pass, with the seed of the forward one.
Tensor dropout_forward(const Tensor& x_, double p, const Tensor& seeds) {
  Tensor x = x_.contiguous(), y = like(x);
  const int64_t columns = x.dim() == 0 ? 1 : x.size(-1), rows = columns == 0 ? 0 : x.numel() / columns;
  with_element_type("dropout", x, [&]<class T>(T) {
    kernels::dropout(data<T>(x), data<T>(y), rows, columns, dropout_of("dropout", p, seeds, 0));
  });
  return y;
}

Tensor dropout_forward_meta(const Tensor& x, double, const Tensor&) { return like_meta(x); }

Tensor call_dropout(const Tensor& x, double p, const Tensor& seeds) {
  static auto op = operator_named<decltype(dropout_forward)>("trireme::dropout_forward");
  return op.call(x, p, seeds);
}

struct Dropout : torch::autograd::Function<Dropout> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x, double p) {
    at::AutoDispatchBelowADInplaceOrView below;
    Tensor seeds = draw_seeds(1, true);
    ctx->save_for_backward({seeds});
    ctx->saved_data["p"] = p;
    return call_dropout(x, p, seeds);
  }

  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    return {call_dropout(gradients[0], ctx->saved_data["p"].toDouble(), ctx->get_saved_variables()[0]), Tensor()};
  }
};

// x and the residual in one type, as torch's addition would have them.
std::pair<Tensor, OptionalTensor> in_one_type(const Tensor& x, const OptionalTensor& residual) {
  if (!is_given(residual)) return {x, std::nullopt};
  at::ScalarType type = at::promote_types(x.scalar_type(), residual->scalar_type());
  return {x.to(type), residual->to(type)};
}

}  // namespace

Tensor layer_norm(const Tensor& x, const OptionalTensor& gamma, const OptionalTensor& beta, double eps) {
  return LayerNorm::apply(x, gamma, beta, eps);
}

Tensor bias_gelu(const Tensor& x, const OptionalTensor& bias, bool tanh) { return BiasGelu::apply(x, bias, tanh); }

Tensor bias_dropout_residual_layer_norm(const Tensor& x, const OptionalTensor& bias, const OptionalTensor& residual,
                                        const OptionalTensor& gamma, const OptionalTensor& beta, double p, double eps) {
  auto [h, r] = in_one_type(x, residual);
  return ResidualNorm::apply(h, bias, r, gamma, beta, p, eps);
}

Tensor bias_dropout_residual(const Tensor& x, const OptionalTensor& bias, const OptionalTensor& residual, double p) {
  auto [h, r] = in_one_type(x, residual);
  return Residual::apply(h, bias, r, p);
}

Tensor dropout(const Tensor& x, double p) { return p == 0 ? x : Dropout::apply(x, p); }

TORCH_LIBRARY_FRAGMENT(trireme, m) {
  m.def("layer_norm(Tensor x, Tensor? gamma, Tensor? beta, float eps) -> Tensor");
  m.def("layer_norm_forward(Tensor x, Tensor? gamma, Tensor? beta, float eps) -> (Tensor, Tensor, Tensor)");
  m.def(
      "layer_norm_backward(Tensor y_gradient, Tensor x, Tensor? gamma, Tensor mean, Tensor rstd, int wanted) -> "
      "(Tensor, Tensor, Tensor)");

  m.def("bias_gelu(Tensor x, Tensor? bias, bool tanh=False) -> Tensor");
  m.def("bias_gelu_forward(Tensor x, Tensor? bias, bool tanh) -> Tensor");
  m.def("bias_gelu_backward(Tensor y_gradient, Tensor x, Tensor? bias, bool tanh, int wanted) -> (Tensor, Tensor)");

  m.def(
      "bias_dropout_residual_layer_norm(Tensor x, Tensor? bias, Tensor? residual, Tensor? gamma, Tensor? beta, float p, "
      "float eps) -> Tensor");
  m.def(
      "bias_dropout_residual_layer_norm_forward(Tensor x, Tensor? bias, Tensor? residual, Tensor? gamma, Tensor? beta, "
      "float p, float eps, Tensor seeds) -> (Tensor, Tensor, Tensor, Tensor)");
  m.def(
      "bias_dropout_residual_layer_norm_backward(Tensor y_gradient, Tensor z, Tensor? gamma, Tensor mean, Tensor rstd, "
      "float p, Tensor seeds, int wanted) -> (Tensor, Tensor, Tensor, Tensor, Tensor)");

  m.def("bias_dropout_residual(Tensor x, Tensor? bias, Tensor? residual, float p) -> Tensor");
  m.def("bias_dropout_residual_forward(Tensor x, Tensor? bias, Tensor? residual, float p, Tensor seeds) -> Tensor");
  m.def("bias_dropout_residual_backward(Tensor z_gradient, float p, Tensor seeds, int wanted) -> (Tensor, Tensor)");

  m.def("dropout(Tensor x, float p) -> Tensor");
  m.def("dropout_forward(Tensor x, float p, Tensor seeds) -> Tensor");
}
TORCH_LIBRARY_IMPL(trireme, CPU, m) {
  m.impl("layer_norm_forward", &layer_norm_forward);
  m.impl("layer_norm_backward", &layer_norm_backward);
  m.impl("bias_gelu_forward", &bias_gelu_forward);
  m.impl("bias_gelu_backward", &bias_gelu_backward);
  m.impl("bias_dropout_residual_layer_norm_forward", &residual_norm_forward);
  m.impl("bias_dropout_residual_layer_norm_backward", &residual_norm_backward);
  m.impl("bias_dropout_residual_forward", &residual_forward);
  m.impl("bias_dropout_residual_backward", &residual_backward);
  m.impl("dropout_forward", &dropout_forward);
}
TORCH_LIBRARY_IMPL(trireme, Meta, m) {
  m.impl("layer_norm_forward", &layer_norm_forward_meta);
  m.impl("layer_norm_backward", &layer_norm_backward_meta);
  m.impl("bias_gelu_forward", &bias_gelu_forward_meta);
  m.impl("bias_gelu_backward", &bias_gelu_backward_meta);
  m.impl("bias_dropout_residual_layer_norm_forward", &residual_norm_forward_meta);
  m.impl("bias_dropout_residual_layer_norm_backward", &residual_norm_backward_meta);
  m.impl("bias_dropout_residual_forward", &residual_forward_meta);
  m.impl("bias_dropout_residual_backward", &residual_backward_meta);
  m.impl("dropout_forward", &dropout_forward_meta);
}
TORCH_LIBRARY_IMPL(trireme, CompositeImplicitAutograd, m) {
  m.impl("layer_norm", &layer_norm);
  m.impl("bias_gelu", &bias_gelu);
  m.impl("bias_dropout_residual_layer_norm", &bias_dropout_residual_layer_norm);
  m.impl("bias_dropout_residual", &bias_dropout_residual);
  m.impl("dropout", &dropout);
}
TORCH_LIBRARY_IMPL(trireme, Autograd, m) {
  refuse_derivatives(m, {"layer_norm_forward", "layer_norm_backward", "bias_gelu_forward", "bias_gelu_backward",
                         "bias_dropout_residual_layer_norm_forward", "bias_dropout_residual_layer_norm_backward",
                         "bias_dropout_residual_forward", "bias_dropout_residual_backward", "dropout_forward"});
}

}  // namespace trireme::ops
