// The processes that train together, and how they find each other.
#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <string>

#include "trireme/torch_ext/process_group/process_group_ccl.h"

namespace trireme::trainer {

// One process's view. Collectives throw what the backend throws: the lost rank is named. With one process they do nothing.
class World {
 public:
  // Asks whoever started the process: mpirun (PMI-1, or MASTER_ADDR and MASTER_PORT), torchrun, Slurm. Nobody: one process.
  // Returns when all are there, for which they have CCL_KVS_CONNECTION_TIMEOUT; `timeout` is that of every collective.
  static World join(std::chrono::seconds timeout);

  // One process.
  World() = default;
  // The processes of a group.
  explicit World(c10::intrusive_ptr<torch_ext::ProcessGroupCCL> group);

  int rank() const { return rank_; }
  int size() const { return size_; }
  int local_rank() const { return local_rank_; }
  bool is_first() const { return rank_ == 0; }
  // Null with one process.
  const c10::intrusive_ptr<torch_ext::ProcessGroupCCL>& group() const { return group_; }
  // "2 processes by hydra: 2 ranks on 1 host, ..."
  std::string describe() const;

  void sum(const at::Tensor& values) const;
  // Rank 0's values on every rank.
  void broadcast(const at::Tensor& values) const;
  void barrier() const;
  // Throws where a collective would, without one: a rank that has much to compute on its own learns that another was lost.
  void check() const;
  // Rank by rank: [size, values].
  at::Tensor gather(const at::Tensor& values) const;

 private:
  int rank_ = 0, size_ = 1, local_rank_ = 0;
  std::string launcher_ = "no launcher";
  c10::intrusive_ptr<torch_ext::ProcessGroupCCL> group_;
};

// As many threads as the host grants one process that is alone. A group of processes settles its own when it is made.
void settle_threads();

}  // namespace trireme::trainer
