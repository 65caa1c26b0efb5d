#include "trireme/trainer/train/adamw.h"

#include <ATen/core/Dict.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/base/fnv.h"
#include "trireme/torch_ext/ops/bf16.h"
#include "trireme/torch_ext/ops/optimizers.h"

namespace trireme::trainer {
namespace {

using c10::IValue;
using Dict = c10::impl::GenericDict;

Dict dict() { return Dict(c10::AnyType::get(), c10::AnyType::get()); }

std::vector<at::Tensor> chosen(const std::vector<at::Tensor>& from, const std::vector<size_t>& which) {
  std::vector<at::Tensor> result;
  for (size_t i : which) result.push_back(from[i]);
  return result;
}

}  // namespace

uint64_t fingerprint(const std::vector<at::Tensor>& tensors) {
  Fnv hash;
  for (const at::Tensor& each : tensors) {
    const at::Tensor flat = each.contiguous();
    hash.mix(flat.const_data_ptr(), flat.nbytes());
  }
  return hash.value();
}

AdamW::AdamW(std::vector<Parameter>& parameters, const AdamWOptions& options) : parameters_(parameters), options_(options) {
  for (size_t i = 0; i < parameters_.size(); ++i) steps_.push_back(at::zeros({}, at::kFloat));
}

void AdamW::split_parameters() {
  for (Parameter& each : parameters_) {
    auto [upper, lower] = torch_ext::split_bf16(each.value.detach());
    each.value = upper.set_requires_grad(true);
    lower_halves_.push_back(lower);
  }
}

at::Tensor AdamW::weight(size_t parameter) const {
  const at::Tensor value = parameters_[parameter].value.detach();
  return lower_halves_.empty() ? value : torch_ext::join_bf16(value, lower_halves_[parameter]);
}

uint64_t AdamW::fingerprint() const {
  std::vector<at::Tensor> tensors;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    tensors.push_back(weight(i));
    if (steps_[i].item<float>() == 0) continue;
    for (const auto* moments : {&exp_avgs_, &exp_avg_sqs_, &steps_}) tensors.push_back((*moments)[i]);
  }
  return trainer::fingerprint(tensors);
}

void AdamW::step(const std::vector<at::Tensor>& gradients, double learning_rate, double gradient_scale) {
  const at::NoGradGuard no_grad;
  for (size_t i = exp_avgs_.size(); i < parameters_.size(); ++i) {
    exp_avgs_.push_back(at::zeros(parameters_[i].value.sizes(), at::kFloat));
    exp_avg_sqs_.push_back(at::zeros(parameters_[i].value.sizes(), at::kFloat));
  }
  for (const bool decays : {true, false}) {
    std::vector<size_t> group;
    std::vector<at::Tensor> values;
    for (size_t i = 0; i < parameters_.size(); ++i) {
      if (parameters_[i].decays != decays) continue;
      group.push_back(i);
      values.push_back(parameters_[i].value);
    }
    kernels::AdamOptions options;
    options.lr = learning_rate;
    options.beta1 = options_.beta1;
    options.beta2 = options_.beta2;
    options.eps = options_.eps;
    options.weight_decay = decays ? options_.weight_decay : 0;
    options.decoupled = true;
    options.gradient_scale = gradient_scale;
    torch_ext::adam_(values, chosen(gradients, group), chosen(exp_avgs_, group), chosen(exp_avg_sqs_, group), {},
                     chosen(steps_, group), lower_halves_.empty() ? std::vector<at::Tensor>() : chosen(lower_halves_, group),
                     options);
  }
}

std::vector<size_t> AdamW::in_groups() const {
  std::vector<size_t> order;
  for (const bool decays : {true, false})
    for (size_t i = 0; i < parameters_.size(); ++i)
      if (parameters_[i].decays == decays) order.push_back(i);
  return order;
}

c10::IValue AdamW::state_dict(double learning_rate, double initial_learning_rate) const {
  TRIREME_ENFORCE(exp_avgs_.size() == parameters_.size(), "the state of an optimizer that has made no step");
  const std::vector<size_t> order = in_groups();
  Dict states = dict();
  c10::List<IValue> members[2] = {c10::List<IValue>(c10::AnyType::get()), c10::List<IValue>(c10::AnyType::get())};
  for (size_t place = 0; place < order.size(); ++place) {
    const size_t i = order[place];
    Dict state = dict();
    state.insert("step", steps_[i].clone());
    state.insert("exp_avg", exp_avgs_[i]);
    state.insert("exp_avg_sq", exp_avg_sqs_[i]);
    states.insert(static_cast<int64_t>(place), state);
    members[parameters_[i].decays ? 0 : 1].push_back(static_cast<int64_t>(place));
  }
  c10::List<IValue> groups(c10::AnyType::get());
  for (int g = 0; g < 2; ++g) {
    Dict group = dict();
    group.insert("lr", learning_rate);
    group.insert("initial_lr", initial_learning_rate);
    group.insert("betas", c10::ivalue::Tuple::create({options_.beta1, options_.beta2}));
    group.insert("eps", options_.eps);
    group.insert("weight_decay", g == 0 ? options_.weight_decay : 0.0);
    for (const char* off : {"amsgrad", "maximize", "capturable", "differentiable"}) group.insert(off, false);
    for (const char* unset : {"foreach", "fused"}) group.insert(unset, IValue());
    group.insert("decoupled_weight_decay", true);
    group.insert("params", members[g]);
    groups.push_back(group);
  }
  Dict result = dict();
  result.insert("state", states);
  result.insert("param_groups", groups);
  return result;
}

void AdamW::load_state_dict(const c10::IValue& state, const std::string& source) {
  const auto refuse = [&](const auto&... why) { throw InvalidArgument(trireme::str(source, ": ", why...)); };
  if (!state.isGenericDict() || !state.toGenericDict().contains("state") ||
      !state.toGenericDict().at("state").isGenericDict())
    refuse("it is not the state of an optimizer");
  const Dict states = state.toGenericDict().at("state").toGenericDict();
  const std::vector<size_t> order = in_groups();
  if (states.size() != order.size())
    refuse("it has the state of ", states.size(), " parameters; the model has ", order.size());
  std::vector<at::Tensor> exp_avgs(order.size()), exp_avg_sqs(order.size()), steps(order.size());
  for (size_t place = 0; place < order.size(); ++place) {
    const Parameter& parameter = parameters_[order[place]];
    const auto entry = states.find(static_cast<int64_t>(place));
    if (entry == states.end() || !entry->value().isGenericDict())
      refuse("state ", place, ", of ", parameter.name, ", is missing");
    const Dict of = entry->value().toGenericDict();
    const auto tensor = [&](const char* key, at::IntArrayRef shape) {
      if (!of.contains(key) || !of.at(key).isTensor()) refuse("state ", place, ", of ", parameter.name, ", has no ", key);
      const at::Tensor value = of.at(key).toTensor();
      if (value.sizes() != shape)
        refuse(key, " of ", parameter.name, " has shape ", value.sizes(), "; its parameter has ", parameter.value.sizes());
      const at::Tensor plain = value.to(at::kFloat).contiguous();
      return plain.storage().use_count() > 1 ? plain.clone() : plain;  // views of one storage
    };
    const size_t i = order[place];
    steps[i] = tensor("step", {}).clone();
    exp_avgs[i] = tensor("exp_avg", parameter.value.sizes());
    exp_avg_sqs[i] = tensor("exp_avg_sq", parameter.value.sizes());
  }
  steps_ = std::move(steps);
  exp_avgs_ = std::move(exp_avgs);
  exp_avg_sqs_ = std::move(exp_avg_sqs);
}

}  // namespace trireme::trainer
