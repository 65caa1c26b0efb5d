#include "trireme/torch_ext/ops/optimizers.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <torch/library.h>

#include "trireme/kernels/global_norm.h"
#include "trireme/torch_ext/ops/threads.h"

namespace trireme::torch_ext {
namespace {

bool lies_as(const at::Tensor& tensor, const at::Tensor& param) {
  return tensor.sizes() == param.sizes() && tensor.strides() == param.strides() && !tensor.is_neg();
}

bfloat16* bf16_data(const at::Tensor& tensor) { return static_cast<bfloat16*>(tensor.data_ptr()); }

// The lists of one call, checked, as pointers for the kernels. Holds the copies of gradients that lie otherwise than their
// parameters.
class Call {
 public:
  Call(const char* name, at::TensorList params, at::TensorList grads, at::TensorList masters)
      : name_(name), params_(params), masters_(masters) {
    take_number_of_threads();
    check_length("gradients", grads.size());
    if (!masters.empty()) check_length("masters", masters.size());
    for (size_t i = 0; i < params.size(); ++i) {
      check_param(i);
      grads_.push_back(arranged_gradient(grads[i], i));
    }
  }

  size_t size() const { return params_.size(); }
  int64_t count(size_t i) const { return params_[i].numel(); }

  kernels::Weights weights(size_t i) const {
    const at::Tensor& param = params_[i];
    if (param.scalar_type() == at::kFloat) return {.fp32 = param.data_ptr<float>()};
    if (masters_.empty()) return {.bf16 = bf16_data(param)};
    if (masters_[i].scalar_type() == at::kFloat) return {.fp32 = masters_[i].data_ptr<float>(), .bf16 = bf16_data(param)};
    return {.bf16 = bf16_data(param), .lower = static_cast<uint16_t*>(masters_[i].data_ptr())};
  }

  kernels::Gradient gradient(size_t i) const {
    if (grads_[i].scalar_type() == at::kFloat) return {.fp32 = grads_[i].const_data_ptr<float>()};
    return {.bf16 = bf16_data(grads_[i])};
  }

  void check_length(const char* what, size_t length) const {
    TORCH_CHECK(length == params_.size(), name_, ": there are ", params_.size(), " parameters and ", length, " ", what);
  }

  float* state(const char* what, at::TensorList tensors, size_t i) const {
    const at::Tensor& tensor = tensors[i];
    TORCH_CHECK(tensor.device().is_cpu() && tensor.scalar_type() == at::kFloat, name_, ": ", what, " ", i, " is of dtype ",
                tensor.scalar_type(), " on ", tensor.device(), "; it must be float32 on cpu");
    check_lies_as_param(what, tensor, i);
    return tensor.data_ptr<float>();
  }

  // The number of the step that is to be made.
  double next_step(at::TensorList steps, size_t i) const {
    const at::Tensor& step = steps[i];
    TORCH_CHECK(step.device().is_cpu() && step.numel() == 1 &&
                    (step.scalar_type() == at::kFloat || step.scalar_type() == at::kDouble),
                name_, ": step ", i, " must be one float32 or float64 on cpu");
    double done = step.scalar_type() == at::kFloat ? *step.const_data_ptr<float>() : *step.const_data_ptr<double>();
    TORCH_CHECK(done >= 0, name_, ": step ", i, " is ", done, "; it counts the steps that were made");
    return done + 1;
  }

  // After the kernel: what was written has a new version, as autograd knows it.
  void finish(at::TensorList steps = {}) const {
    for (const at::Tensor& step : steps) {
      if (step.scalar_type() == at::kFloat)
        *step.data_ptr<float>() += 1;
      else
        *step.data_ptr<double>() += 1;
    }
    for (const at::Tensor& param : params_)
      if (!param.is_inference()) param.unsafeGetTensorImpl()->bump_version();
  }

 private:
  void check_param(size_t i) const {
    const at::Tensor& param = params_[i];
    at::ScalarType dtype = param.scalar_type();
    TORCH_CHECK(param.device().is_cpu() && param.layout() == at::kStrided && (dtype == at::kFloat || dtype == at::kBFloat16),
                name_, ": parameter ", i, " is ", param.layout(), " of dtype ", dtype, " on ", param.device(),
                "; it must be strided, float32 or bfloat16, on cpu");
    TORCH_CHECK(param.is_non_overlapping_and_dense(), name_, ": the elements of parameter ", i,
                " overlap or have gaps between them: shape ", param.sizes(), ", strides ", param.strides(),
                ". Update the tensor that it is a view of");
    if (masters_.empty()) return;
    at::ScalarType of_master = masters_[i].scalar_type();
    TORCH_CHECK(dtype == at::kBFloat16, name_, ": parameter ", i, " is float32 and needs no master");
    TORCH_CHECK(masters_[i].device().is_cpu() && (of_master == at::kFloat || of_master == at::kShort), name_, ": master ", i,
                " is of dtype ", of_master, " on ", masters_[i].device(),
                "; it must be float32, or int16 for lower halves, on cpu");
    check_lies_as_param("master", masters_[i], i);
  }

  void check_lies_as_param(const char* what, const at::Tensor& tensor, size_t i) const {
    TORCH_CHECK(lies_as(tensor, params_[i]), name_, ": ", what, " ", i, " has shape ", tensor.sizes(), " and strides ",
                tensor.strides(), ", its parameter ", params_[i].sizes(), " and ", params_[i].strides());
  }

  at::Tensor arranged_gradient(const at::Tensor& grad, size_t i) const {
    TORCH_CHECK(grad.layout() == at::kStrided, name_, ": gradient ", i, " is ", grad.layout(),
                "; only dense gradients are supported");
    TORCH_CHECK(grad.device().is_cpu() && (grad.scalar_type() == at::kFloat || grad.scalar_type() == at::kBFloat16), name_,
                ": gradient ", i, " is of dtype ", grad.scalar_type(), " on ", grad.device(),
                "; it must be float32 or bfloat16, on cpu");
    TORCH_CHECK(grad.sizes() == params_[i].sizes(), name_, ": gradient ", i, " has shape ", grad.sizes(), ", its parameter ",
                params_[i].sizes());
    if (lies_as(grad, params_[i])) return grad;
    return at::empty_like(params_[i], params_[i].options().dtype(grad.scalar_type())).copy_(grad);
  }

  const char* name_;
  at::TensorList params_, masters_;
  std::vector<at::Tensor> grads_;
};

void adam_call(const char* name, at::TensorList params, at::TensorList grads, at::TensorList exp_avgs,
               at::TensorList exp_avg_sqs, at::TensorList max_exp_avg_sqs, at::TensorList steps, at::TensorList masters,
               const kernels::AdamOptions& options) {
  Call call(name, params, grads, masters);
  call.check_length("exp_avgs", exp_avgs.size());
  call.check_length("exp_avg_sqs", exp_avg_sqs.size());
  call.check_length("steps", steps.size());
  if (!max_exp_avg_sqs.empty()) call.check_length("max_exp_avg_sqs", max_exp_avg_sqs.size());
  std::vector<kernels::AdamTensor> tensors;
  for (size_t i = 0; i < call.size(); ++i)
    tensors.push_back(
        {.weights = call.weights(i),
         .gradient = call.gradient(i),
         .exp_avg = call.state("exp_avg", exp_avgs, i),
         .exp_avg_sq = call.state("exp_avg_sq", exp_avg_sqs, i),
         .max_exp_avg_sq = max_exp_avg_sqs.empty() ? nullptr : call.state("max_exp_avg_sq", max_exp_avg_sqs, i),
         .step = call.next_step(steps, i),
         .count = call.count(i)});
  kernels::adam(tensors, options);
  call.finish(steps);
}

}  // namespace

void adam_(at::TensorList params, at::TensorList grads, at::TensorList exp_avgs, at::TensorList exp_avg_sqs,
           at::TensorList max_exp_avg_sqs, at::TensorList steps, at::TensorList masters,
           const kernels::AdamOptions& options) {
  adam_call(options.decoupled ? "trireme::adamw_" : "trireme::adam_", params, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs,
            steps, masters, options);
}

void sgd_(at::TensorList params, at::TensorList grads, at::TensorList momentum_buffers, const std::vector<bool>& first,
          at::TensorList masters, const kernels::SgdOptions& options) {
  Call call("trireme::sgd_", params, grads, masters);
  if (options.momentum != 0) {
    call.check_length("momentum_buffers", momentum_buffers.size());
    call.check_length("elements of first", first.size());
  }
  std::vector<kernels::SgdTensor> tensors;
  for (size_t i = 0; i < call.size(); ++i) {
    kernels::SgdTensor tensor{.weights = call.weights(i), .gradient = call.gradient(i), .count = call.count(i)};
    if (options.momentum != 0) {
      tensor.momentum_buffer = call.state("momentum_buffer", momentum_buffers, i);
      tensor.first = first[i];
    }
    tensors.push_back(tensor);
  }
  kernels::sgd(tensors, options);
  call.finish();
}

void adagrad_(at::TensorList params, at::TensorList grads, at::TensorList sums, at::TensorList steps, at::TensorList masters,
              const kernels::AdagradOptions& options) {
  Call call("trireme::adagrad_", params, grads, masters);
  call.check_length("sums", sums.size());
  call.check_length("steps", steps.size());
  std::vector<kernels::AdagradTensor> tensors;
  for (size_t i = 0; i < call.size(); ++i)
    tensors.push_back({.weights = call.weights(i),
                       .gradient = call.gradient(i),
                       .sum = call.state("sum", sums, i),
                       .step = call.next_step(steps, i),
                       .count = call.count(i)});
  kernels::adagrad(tensors, options);
  call.finish(steps);
}

void lamb_(at::TensorList params, at::TensorList grads, at::TensorList exp_avgs, at::TensorList exp_avg_sqs,
           at::TensorList steps, at::TensorList masters, const kernels::LambOptions& options) {
  Call call("trireme::lamb_", params, grads, masters);
  call.check_length("exp_avgs", exp_avgs.size());
  call.check_length("exp_avg_sqs", exp_avg_sqs.size());
  call.check_length("steps", steps.size());
  std::vector<kernels::LambTensor> tensors;
  for (size_t i = 0; i < call.size(); ++i)
    tensors.push_back({.weights = call.weights(i),
                       .gradient = call.gradient(i),
                       .exp_avg = call.state("exp_avg", exp_avgs, i),
                       .exp_avg_sq = call.state("exp_avg_sq", exp_avg_sqs, i),
                       .step = call.next_step(steps, i),
                       .count = call.count(i)});
  kernels::lamb(tensors, options);
  call.finish(steps);
}

double global_norm(at::TensorList tensors) {
  std::vector<at::Tensor> held;
  std::vector<kernels::ConstTensor> pointers;
  for (const at::Tensor& tensor : tensors) {
    at::ScalarType dtype = tensor.scalar_type();
    TORCH_CHECK(
        tensor.device().is_cpu() && tensor.layout() == at::kStrided && (dtype == at::kFloat || dtype == at::kBFloat16),
        "trireme::global_norm: a tensor is ", tensor.layout(), " of dtype ", dtype, " on ", tensor.device(),
        "; it must be strided, float32 or bfloat16, on cpu");
    held.push_back(tensor.is_non_overlapping_and_dense() ? tensor : tensor.contiguous());
    const at::Tensor& dense = held.back();
    if (dtype == at::kFloat)
      pointers.push_back({.fp32 = dense.const_data_ptr<float>(), .count = dense.numel()});
    else
      pointers.push_back({.bf16 = bf16_data(dense), .count = dense.numel()});
  }
  take_number_of_threads();
  return kernels::global_norm(pointers);
}

double clip_coefficient(double norm, double max_norm) { return kernels::clip_coefficient(norm, max_norm); }

namespace {

// The operators: lists first, then every option by name.

template <bool decoupled>
void adam_op(at::TensorList params, at::TensorList grads, at::TensorList exp_avgs, at::TensorList exp_avg_sqs,
             at::TensorList max_exp_avg_sqs, at::TensorList steps, at::TensorList masters, double lr, double beta1,
             double beta2, double eps, double weight_decay, bool maximize, double gradient_scale) {
  adam_(params, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, steps, masters,
        {lr, beta1, beta2, eps, weight_decay, decoupled, maximize, gradient_scale});
}

void sgd_op(at::TensorList params, at::TensorList grads, at::TensorList momentum_buffers, at::TensorList masters,
            const c10::List<bool>& first, double lr, double momentum, double dampening, double weight_decay, bool nesterov,
            bool maximize, double gradient_scale) {
  sgd_(params, grads, momentum_buffers, {first.begin(), first.end()}, masters,
       {lr, momentum, dampening, weight_decay, nesterov, maximize, gradient_scale});
}

void adagrad_op(at::TensorList params, at::TensorList grads, at::TensorList sums, at::TensorList steps,
                at::TensorList masters, double lr, double lr_decay, double eps, double weight_decay, bool maximize,
                double gradient_scale) {
  adagrad_(params, grads, sums, steps, masters, {lr, lr_decay, eps, weight_decay, maximize, gradient_scale});
}

void lamb_op(at::TensorList params, at::TensorList grads, at::TensorList exp_avgs, at::TensorList exp_avg_sqs,
             at::TensorList steps, at::TensorList masters, double lr, double beta1, double beta2, double eps,
             double weight_decay, bool maximize, double gradient_scale) {
  lamb_(params, grads, exp_avgs, exp_avg_sqs, steps, masters,
        {lr, beta1, beta2, eps, weight_decay, maximize, gradient_scale});
}

at::Tensor global_norm_op(at::TensorList tensors) { return at::full({}, global_norm(tensors), at::kDouble); }

at::Tensor global_norm_meta(at::TensorList) {
  return at::empty({}, at::TensorOptions().dtype(at::kDouble).device(at::kMeta));
}

// Without data there is nothing to change.
template <class... Args>
void nothing(Args...) {}

template <class Result, class... Args>
constexpr auto nothing_like(Result (*)(Args...)) {
  return &nothing<Args...>;
}

TORCH_LIBRARY_FRAGMENT(trireme, library) {
  const std::string adam =
      "(Tensor(a!)[] params, Tensor[] grads, Tensor(b!)[] exp_avgs, Tensor(c!)[] exp_avg_sqs, Tensor(d!)[] max_exp_avg_sqs, "
      "Tensor(e!)[] steps, "
      "Tensor(f!)[] masters, *, float lr, float beta1, float beta2, float eps, float weight_decay, bool maximize=False, "
      "float gradient_scale=1.) -> ()";
  library.def(("adam_" + adam).c_str());
  library.def(("adamw_" + adam).c_str());
  library.def(
      "sgd_(Tensor(a!)[] params, Tensor[] grads, Tensor(b!)[] momentum_buffers, Tensor(c!)[] masters, *, bool[] first, "
      "float lr, float momentum=0., "
      "float dampening=0., float weight_decay=0., bool nesterov=False, bool maximize=False, float gradient_scale=1.) -> ()");
  library.def(
      "adagrad_(Tensor(a!)[] params, Tensor[] grads, Tensor(b!)[] sums, Tensor(c!)[] steps, Tensor(d!)[] masters, *, float "
      "lr, float lr_decay, "
      "float eps, float weight_decay, bool maximize=False, float gradient_scale=1.) -> ()");
  library.def(
      "lamb_(Tensor(a!)[] params, Tensor[] grads, Tensor(b!)[] exp_avgs, Tensor(c!)[] exp_avg_sqs, Tensor(d!)[] steps, "
      "Tensor(e!)[] masters, *, "
      "float lr, float beta1, float beta2, float eps, float weight_decay, bool maximize=False, float gradient_scale=1.) -> "
      "()");
  library.def("global_norm(Tensor[] tensors) -> Tensor");
}

TORCH_LIBRARY_IMPL(trireme, CPU, library) {
  library.impl("adam_", adam_op<false>);
  library.impl("adamw_", adam_op<true>);
  library.impl("sgd_", sgd_op);
  library.impl("adagrad_", adagrad_op);
  library.impl("lamb_", lamb_op);
  library.impl("global_norm", global_norm_op);
}

TORCH_LIBRARY_IMPL(trireme, Meta, library) {
  library.impl("adam_", nothing_like(adam_op<false>));
  library.impl("adamw_", nothing_like(adam_op<true>));
  library.impl("sgd_", nothing_like(sgd_op));
  library.impl("adagrad_", nothing_like(adagrad_op));
  library.impl("lamb_", nothing_like(lamb_op));
  library.impl("global_norm", global_norm_meta);
}

}  // namespace
}  // namespace trireme::torch_ext
