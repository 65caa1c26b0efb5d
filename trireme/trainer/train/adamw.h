// AdamW over a model's parameters, in transformers' two groups: with weight decay and without.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <vector>

#include "trireme/trainer/model/qa_model.h"

namespace trireme::trainer {

struct AdamWOptions {
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0;
};

// Owns the moments, and, for parameters in bfloat16, the lower halves of the fp32 weights whose upper halves they are: no
// part of a step is lost. One thread at a time.
class AdamW {
 public:
  // The moments are made by the first step, unless load_state_dict() brings them, in memory that its activations have left.
  AdamW(std::vector<Parameter>& parameters, const AdamWOptions& options);

  // Makes the parameters bfloat16. Before any gradient is made.
  void split_parameters();

  // gradient_scale multiplies every gradient: a clip coefficient.
  void step(const std::vector<at::Tensor>& gradients, double learning_rate, double gradient_scale);

  // A parameter's weight in fp32: a copy where it is held in halves.
  at::Tensor weight(size_t parameter) const;

  // Of the weights, before they are split, and of the moments once there are any.
  uint64_t fingerprint() const;

  // After a step or load_state_dict(). As torch.optim.AdamW's state_dict() has it, for the groups that transformers makes: HF's Trainer loads it, and we load
  // what HF's Trainer saved. InvalidArgument, naming `source`, for what does not fit; nothing is changed then. A tensor of
  // `state` that nobody else has is taken over, not copied.
  c10::IValue state_dict(double learning_rate, double initial_learning_rate) const;
  void load_state_dict(const c10::IValue& state, const std::string& source);

 private:
  std::vector<size_t> in_groups() const;  // parameters in the order of the state_dict

  std::vector<Parameter>& parameters_;
  AdamWOptions options_;
  std::vector<at::Tensor> exp_avgs_, exp_avg_sqs_, steps_, lower_halves_;
};

// Ranks that have the same number have the same bits.
uint64_t fingerprint(const std::vector<at::Tensor>& tensors);

}  // namespace trireme::trainer
