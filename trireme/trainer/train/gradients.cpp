#include "trireme/trainer/train/gradients.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include "trireme/trainer/train/seconds.h"

namespace trireme::trainer {

struct Gradients::Bucket {
  at::Tensor flat;
  std::vector<size_t> parameters;
  size_t missing = 0;  // gradients that the last micro-batch has not brought yet
  c10::intrusive_ptr<c10d::Work> work;
};

class Gradients::Hook : public torch::autograd::PostAccumulateGradHook {
 public:
  Hook(Gradients& gradients, size_t parameter) : gradients_(gradients), parameter_(parameter) {}
  void operator()(const at::Tensor&) override { gradients_.arrived(parameter_); }

 private:
  Gradients& gradients_;
  size_t parameter_;
};

Gradients::Gradients(std::vector<Parameter>& parameters, const World& world, int64_t micro_batches, int64_t bucket_bytes)
    : parameters_(parameters),
      group_(world.group()),
      bucket_of_(parameters.size()),
      values_(parameters.size()),
      has_value_(parameters.size()) {
  if (micro_batches > 1 && parameters[0].value.scalar_type() == at::kBFloat16)
    for (const Parameter& each : parameters) sums_.push_back(at::zeros(each.value.sizes(), at::kFloat));
  if (has_hooks())
    for (size_t i = 0; i < parameters.size(); ++i)
      torch::autograd::impl::set_post_acc_grad_hooks(parameters[i].value, std::make_unique<Hook>(*this, i));
  if (!group_) return;
  int64_t bytes = 0;
  for (size_t i = parameters.size(); i-- > 0;) {
    const int64_t more = static_cast<int64_t>(parameters[i].value.nbytes());
    if (buckets_.empty() || bytes + more > bucket_bytes) {
      buckets_.push_back(std::make_unique<Bucket>());
      bytes = 0;
    }
    bytes += more;
    bucket_of_[i] = buckets_.size() - 1;
    buckets_.back()->parameters.push_back(i);
  }
  for (auto& bucket : buckets_) {
    int64_t count = 0;
    for (size_t i : bucket->parameters) count += parameters[i].value.numel();
    bucket->flat =
        group_->allocateTensor(count, parameters[bucket->parameters[0]].value.options().requires_grad(false)).zero_();
    int64_t offset = 0;
    for (size_t i : bucket->parameters) {
      const at::Tensor& value = parameters[i].value;
      values_[i] = bucket->flat.narrow(0, offset, value.numel()).view(value.sizes());
      offset += value.numel();
    }
  }
}

Gradients::~Gradients() {
  if (!has_hooks()) return;
  for (Parameter& parameter : parameters_) torch::autograd::impl::set_post_acc_grad_hooks(parameter.value, nullptr);
}

void Gradients::begin(bool first, bool last) {
  last_ = last;
  if (first) {
    has_value_.assign(parameters_.size(), false);
    sent_ = 0;
    if (!group_)
      for (Parameter& parameter : parameters_) parameter.value.mutable_grad().reset();
  }
  for (auto& bucket : buckets_) bucket->missing = bucket->parameters.size();
}

void Gradients::arrived(size_t parameter) {
  const at::NoGradGuard no_grad;
  at::Tensor& grad = parameters_[parameter].value.mutable_grad();
  const at::Tensor& sum = sums_.empty() ? values_[parameter] : sums_[parameter];
  if (has_value_[parameter])
    sum.add_(grad);
  else
    sum.copy_(grad);
  has_value_[parameter] = true;
  grad.reset();
  if (!group_) return;
  --buckets_[bucket_of_[parameter]]->missing;
  if (last_) send_ready();
}

// In the order of the buckets, which is the same on every rank.
void Gradients::send_ready() {
  while (sent_ < buckets_.size() && buckets_[sent_]->missing == 0) {
    if (!sums_.empty())
      for (size_t i : buckets_[sent_]->parameters)
        if (has_value_[i]) values_[i].copy_(sums_[i]);
    std::vector<at::Tensor> tensors{buckets_[sent_]->flat};
    buckets_[sent_]->work = group_->allreduce(tensors, {});
    ++sent_;
  }
}

void Gradients::finish() {
  const at::NoGradGuard no_grad;
  if (!group_) {
    for (size_t i = 0; i < parameters_.size(); ++i) {
      const at::Tensor& grad = sums_.empty() ? parameters_[i].value.grad() : sums_[i];
      const bool is_there = sums_.empty() ? grad.defined() : has_value_[i];
      values_[i] = is_there ? grad.to(parameters_[i].value.scalar_type()) : at::zeros_like(parameters_[i].value);
    }
    return;
  }
  // What no backward pass of this rank reached counts as zero.
  for (size_t i = 0; i < parameters_.size(); ++i)
    if (!has_value_[i]) values_[i].zero_();
  for (auto& bucket : buckets_) bucket->missing = 0;
  send_ready();
  const double start = now();
  for (auto& bucket : buckets_) {
    bucket->work->wait(kNoTimeout);
    bucket->work.reset();
  }
  wait_seconds_ += now() - start;
}

}  // namespace trireme::trainer
