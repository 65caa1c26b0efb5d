// The c10d backend "ccl": PyTorch's collectives on Trireme's. Usable from C++ without Python; see docs/torch.md.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

#include "trireme/ccl/comm/communicator.h"
#include "trireme/torch_ext/process_group/work_ccl.h"

namespace trireme::torch_ext {

// Owns a communicator. Threads may share it; the order in which they submit must be the same on every rank. Methods that return a Work do not
// wait for other ranks (allreduce_coalesced and allreduce_sparse do). Every operation has a deadline: the call's own, else the group's. A
// lost peer, a mismatch, a timeout or abort() ends the group on every rank: pending and later operations fail with the first cause. Names
// of overrides are torch's.
class __attribute__((visibility("default"))) ProcessGroupCCL : public c10d::Backend {
 public:
  struct Options : c10d::Backend::Options {
    explicit Options(std::chrono::milliseconds timeout = kBackendDefaultTimeout) : c10d::Backend::Options("ccl", timeout) {}
  };

  // Collective: returns when all ranks are there. Throws c10::DistNetworkError, DistBackendError or DistStoreError naming who did not come.
  ProcessGroupCCL(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size, c10::intrusive_ptr<Options> options = c10::make_intrusive<Options>());
  // For C++ programs that have no c10d Store: under mpirun, PMI's (ccl::connect_pmi) serves.
  ProcessGroupCCL(const std::shared_ptr<ccl::Store>& store, int rank, int size, c10::intrusive_ptr<Options> options = c10::make_intrusive<Options>());
  ~ProcessGroupCCL() override;

  const std::string getBackendName() const override { return "ccl"; }
  // A copy with the timeout of now: torch makes a split's options of it, in place.
  c10::intrusive_ptr<c10d::Backend::Options> getBackendOptions() override;
  // "4 ranks on 1 host, shared memory with direct reads"
  std::string describe() const { return communicator()->describe(); }

  c10::intrusive_ptr<c10d::Work> broadcast(std::vector<at::Tensor>& tensors, const c10d::BroadcastOptions& opts) override;
  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>& tensors, const c10d::AllreduceOptions& opts) override;
  c10::intrusive_ptr<c10d::Work> allreduce_sparse(std::vector<at::Tensor>& tensors, const c10d::AllreduceOptions& opts) override;
  // Complete when it returns: programs written for the older backend do not wait for it.
  c10::intrusive_ptr<c10d::Work> allreduce_coalesced(std::vector<at::Tensor>& tensors, const c10d::AllreduceCoalescedOptions& opts) override;
  c10::intrusive_ptr<c10d::Work> reduce(std::vector<at::Tensor>& tensors, const c10d::ReduceOptions& opts) override;
  c10::intrusive_ptr<c10d::Work> allgather(std::vector<std::vector<at::Tensor>>& outputs, std::vector<at::Tensor>& inputs,
                                           const c10d::AllgatherOptions& opts) override;
  c10::intrusive_ptr<c10d::Work> _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& opts) override;
  c10::intrusive_ptr<c10d::Work> allgather_coalesced(std::vector<std::vector<at::Tensor>>& outputs, std::vector<at::Tensor>& inputs,
                                                     const c10d::AllgatherOptions& opts) override;
  c10::intrusive_ptr<c10d::Work> allgather_into_tensor_coalesced(std::vector<at::Tensor>& outputs, std::vector<at::Tensor>& inputs,
                                                                 const c10d::AllgatherOptions& opts) override;
  c10::intrusive_ptr<c10d::Work> gather(std::vector<std::vector<at::Tensor>>& outputs, std::vector<at::Tensor>& inputs,
                                        const c10d::GatherOptions& opts) override;
  c10::intrusive_ptr<c10d::Work> scatter(std::vector<at::Tensor>& outputs, std::vector<std::vector<at::Tensor>>& inputs,
                                         const c10d::ScatterOptions& opts) override;
  c10::intrusive_ptr<c10d::Work> reduce_scatter(std::vector<at::Tensor>& outputs, std::vector<std::vector<at::Tensor>>& inputs,
                                                const c10d::ReduceScatterOptions& opts) override;
  c10::intrusive_ptr<c10d::Work> _reduce_scatter_base(at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& opts) override;
  c10::intrusive_ptr<c10d::Work> reduce_scatter_tensor_coalesced(std::vector<at::Tensor>& outputs, std::vector<at::Tensor>& inputs,
                                                                 const c10d::ReduceScatterOptions& opts) override;
  c10::intrusive_ptr<c10d::Work> alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits,
                                               std::vector<int64_t>& input_splits, const c10d::AllToAllOptions& opts) override;
  c10::intrusive_ptr<c10d::Work> alltoall(std::vector<at::Tensor>& outputs, std::vector<at::Tensor>& inputs,
                                          const c10d::AllToAllOptions& opts) override;
  c10::intrusive_ptr<c10d::Work> send(std::vector<at::Tensor>& tensors, int to, int tag) override;
  c10::intrusive_ptr<c10d::Work> recv(std::vector<at::Tensor>& tensors, int from, int tag) override;
  c10::intrusive_ptr<c10d::Work> recvAnysource(std::vector<at::Tensor>& tensors, int tag) override;
  c10::intrusive_ptr<c10d::Work> barrier(const c10d::BarrierOptions& opts) override;
  // A barrier that throws naming who did not come: of this host's ranks all, of other hosts' those for which this rank waits. `wait_all_ranks` makes
  // no difference.
  void monitoredBarrier(const c10d::BarrierOptions& opts, bool wait_all_ranks) override;

  // What lies between start and end is submitted as it comes; one work stands for all of it.
  bool supportsCoalescing() const override { return true; }
  void startCoalescing() override;
  c10::intrusive_ptr<c10d::Work> endCoalescing() override;

  // `ranks` of this group form a new one; null on the others. Only the members take part.
  bool supportsSplitting() const override { return true; }
  c10::intrusive_ptr<c10d::Backend> split(const c10::intrusive_ptr<c10d::Store>& store, const std::vector<int>& ranks,
                                          const c10::intrusive_ptr<c10d::Backend::Options>& opts) override;

  // The ranks of several groups form one; called by all of them, with the place that each will have.
  c10::intrusive_ptr<c10d::Backend> merge(const c10::intrusive_ptr<c10d::Store>& store, const c10::intrusive_ptr<c10d::Backend::Options>& opts,
                                          const int& rank, const int& size) override;

  // Memory that the other ranks of the host can map: operations on it need no copy. DDP takes its buckets from here.
  bool supportsTensorAlloc(c10::DeviceIndex) override { return true; }
  at::Tensor allocateTensor(long size, at::TensorOptions options) override;

  // Collectives are numbered from 1 on every rank alike; no agreement is needed.
  void setSequenceNumberForGroup() override {}
  uint64_t getSequenceNumberForGroup() override { return sequence_number_; }

  void setTimeout(std::chrono::milliseconds timeout) override { timeout_ms_ = timeout.count(); }
  c10d::ErrorType getError() override;
  // Throws DistBackendError when they take longer than the group's timeout.
  void waitForPendingWorks() override;
  // Works from here on know how long they took.
  void enableCollectivesTiming() override { timing_ = true; }
  // Ends the group on every rank at once; whoever waits gets an error. Any thread may call it.
  void abort() override;
  // Ends it in order: what is under way is given a while to complete. Later operations throw.
  void shutdown() override;

 private:
  // One call's operations on their way to the communicator.
  struct Submission;
  c10::intrusive_ptr<WorkCCL> submit(Submission submission);
  c10::intrusive_ptr<c10d::Work> receive(std::vector<at::Tensor>& tensors, int from, int tag, c10d::OpType type);
  std::shared_ptr<ccl::Communicator> communicator() const;
  void remember(const ccl::Request& request);
  void join_window(const c10::intrusive_ptr<WorkCCL>& work);
  bool drain(Deadline deadline);
  void end(std::chrono::milliseconds drain_time);

  const c10::intrusive_ptr<Options> options_;
  const std::shared_ptr<const GroupRanks> ranks_;
  std::atomic<int64_t> timeout_ms_;
  std::atomic<uint64_t> sequence_number_{0};
  std::atomic<bool> timing_{false};

  mutable std::mutex mutex_;
  std::shared_ptr<ccl::Communicator> communicator_;  // null after shutdown
  const std::shared_ptr<Load> load_ = std::make_shared<Load>();
  std::vector<ccl::Request> pending_;                // may hold finished ones too, up to twice as many as not
  size_t prune_at_ = 64;
  std::optional<std::vector<c10::intrusive_ptr<WorkCCL>>> coalescing_;  // between start and end
};

}  // namespace trireme::torch_ext
