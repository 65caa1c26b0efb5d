// The gradients of a step: summed over micro-batches and, while the backward pass goes on, over the ranks.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "trireme/trainer/model/qa_model.h"
#include "trireme/trainer/train/world.h"

namespace trireme::trainer {

// Owns the buckets and hooks on the parameters, which it takes off at its end. With several ranks a gradient moves into its
// bucket as soon as autograd has it; in the last micro-batch a full bucket goes to the other ranks at once. Buckets lie in
// memory that the ranks of a host share, and hold parameters from the last to the first, as the backward pass reaches them.
// Gradients in bfloat16 of several micro-batches are summed in fp32 and rounded once: in eight bits of precision small ones
// would be lost beside a larger sum. One thread drives it; autograd's may call the hooks.
class Gradients {
 public:
  static constexpr int64_t kBucketBytes = 25 << 20;  // as DDP's

  // `micro_batches` of a step.
  Gradients(std::vector<Parameter>& parameters, const World& world, int64_t micro_batches,
            int64_t bucket_bytes = kBucketBytes);
  ~Gradients();
  Gradients(const Gradients&) = delete;

  // Before the backward pass of a micro-batch. The first of a step starts from zero; during the last, buckets travel.
  void begin(bool first, bool last);
  // After the last backward pass of a step, or instead of it on a rank that has no samples. Waits for the other ranks.
  void finish();

  // One per parameter, after finish(). Valid until the next begin().
  const std::vector<at::Tensor>& values() const { return values_; }
  // Spent in finish() since the start: what the backward pass did not hide.
  double wait_seconds() const { return wait_seconds_; }

 private:
  struct Bucket;
  class Hook;
  void arrived(size_t parameter);
  void send_ready();
  bool has_hooks() const { return group_ || !sums_.empty(); }

  std::vector<Parameter>& parameters_;
  c10::intrusive_ptr<torch_ext::ProcessGroupCCL> group_;
  std::vector<std::unique_ptr<Bucket>> buckets_;
  std::vector<size_t> bucket_of_;   // by parameter
  std::vector<at::Tensor> values_;  // by parameter; with several ranks, views of the buckets
  std::vector<at::Tensor> sums_;    // by parameter, in fp32, where values_ are too coarse for them; else empty
  std::vector<bool> has_value_;     // in this step
  size_t sent_ = 0;                 // buckets of this step
  bool last_ = false;
  double wait_seconds_ = 0;
};

}  // namespace trireme::trainer
