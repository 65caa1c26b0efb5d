// The c10d Work of a ccl operation: what a caller holds while it is under way.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

#include "trireme/base/env.h"
#include "trireme/ccl/comm/communicator.h"
#include "trireme/torch_ext/process_group/errors.h"
#include "trireme/torch_ext/process_group/tensors.h"

namespace trireme::torch_ext {

// What is under way in a group. Threads share it.
class Load {
 public:
  void add(size_t bytes) { bytes_.fetch_add(bytes, std::memory_order_relaxed); }
  void remove(size_t bytes) { bytes_.fetch_sub(bytes, std::memory_order_relaxed); }
  // There is so much of it that a worker should carry it on, not a caller that only asks whether it is complete.
  bool is_for_workers() const { return has_workers_ && bytes_.load(std::memory_order_relaxed) > kMaxPolledBytes; }

 private:
  static constexpr size_t kMaxPolledBytes = 256 * 1024;
  const bool has_workers_ = env::flag("CCL_WORKER_OFFLOAD");
  std::atomic<size_t> bytes_{0};
};

// What the communicator keeps of a work until its operations are complete, whether or not somebody still holds the work: the tensors, what is
// to be done at the end, and the future if somebody has asked for it. Threads share it.
class Completion {
 public:
  // `bytes` of its operations count in the group's load until they have ended.
  Completion(int operations, Staging staging, std::vector<at::Tensor> outputs, std::shared_ptr<const GroupRanks> ranks, std::shared_ptr<Load> load,
             size_t bytes)
      : ranks_(std::move(ranks)), left_(operations), staging_(std::move(staging)), outputs_(std::move(outputs)), load_(std::move(load)), bytes_(bytes) {
    load_->add(bytes_);
  }
  ~Completion() { load_->remove(bytes_); }
  Completion(const Completion&) = delete;

  // The first operation starts; those before it are complete.
  void start() { staging_.take_copies(); }
  bool has_to_start() const { return staging_.has_copies_to_take(); }
  // One of the operations has ended. The thread that drove it calls this, and hands over its reference: a tensor of Python's that goes with
  // the last one takes the GIL, for which a worker must not wait.
  static void operation_ended(std::shared_ptr<Completion> completion, const std::exception_ptr& error);
  // Complete when all operations are. Its callbacks run on a thread of their own, where they may wait for other operations.
  c10::intrusive_ptr<c10::ivalue::Future> future();
  // As torch's; null while nothing has failed.
  std::exception_ptr error() const;
  // All operations have ended. A request says so a little later.
  bool ended() const;
  // Once ended.
  c10d::WorkResult outcome() const;
  const std::vector<at::Tensor>& outputs() const { return outputs_; }
  // Called once, at the end: the profiler's.
  void at_end(std::function<void()> end) { at_end_ = std::move(end); }
  // Before it is submitted: how long it takes will be wanted.
  void take_time() { started_ = std::chrono::steady_clock::now(); }
  std::optional<std::chrono::steady_clock::duration> duration() const;

 private:
  void end_one(const std::exception_ptr& error);
  // The future, if somebody has asked for it.
  c10::intrusive_ptr<c10::ivalue::Future> end();

  const std::shared_ptr<const GroupRanks> ranks_;
  std::atomic<int> left_;
  Staging staging_;
  const std::vector<at::Tensor> outputs_;
  const std::shared_ptr<Load> load_;
  size_t bytes_;  // 0 once ended
  std::function<void()> at_end_;
  std::optional<std::chrono::steady_clock::time_point> started_;
  mutable std::mutex mutex_;
  bool ended_ = false;
  c10d::WorkResult outcome_ = c10d::WorkResult::SUCCESS;
  std::exception_ptr error_;
  std::optional<std::chrono::steady_clock::duration> duration_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

// Before Python ends: waits up to 2 s each for callbacks of futures and for tensors to be let go of; what operations still hold then, or later, they keep.
[[gnu::visibility("default")]] void let_go_no_more();

// Owns nothing that the operations need: dropping it cancels nothing. Threads may share it. wait() blocks, and drives the operations itself;
// nothing else blocks. In a forked child, wait(), isCompleted() and getFuture() of one that had not ended throw c10::ValueError.
class WorkCCL : public c10d::Work {
 public:
  WorkCCL(int rank, c10d::OpType type, const char* title, const std::vector<at::Tensor>& inputs) : Work(rank, type, title, inputs) {}

  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  int sourceRank() const override;
  std::vector<at::Tensor> result() override;
  void synchronize() override {}  // as torch has it for CPU tensors: Python calls it with the GIL held
  bool wait(std::chrono::milliseconds timeout) override;
  void abort() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFutureResult() override;
  // In milliseconds. Throws where enableCollectivesTiming() was not called before.
  float getDuration() const override;
  uint64_t getSequencenumber() const override { return sequence_number_; }

 private:
  friend class ProcessGroupCCL;
  bool was_asked_for() const { return was_asked_for_; }
  void check_failed() const;
  void hand_over();
  uint64_t sequence_number_ = 0;
  std::vector<ccl::Request> requests_;
  std::shared_ptr<Completion> completion_;
  std::shared_ptr<const GroupRanks> ranks_;
  std::shared_ptr<const Load> load_;
  std::weak_ptr<ccl::Communicator> communicator_;  // a work must not keep a group from ending
  std::atomic<bool> was_asked_for_{false};         // a caller has waited for it, polled it or taken its future
  std::atomic<int64_t> handed_over_in_{-1};        // the process, by fork_generation()
};

// What endCoalescing returns: complete when all are.
class CoalescedWork : public c10d::Work {
 public:
  CoalescedWork(int rank, std::vector<c10::intrusive_ptr<c10d::Work>> works) : Work(rank, c10d::OpType::COALESCED), works_(std::move(works)) {}

  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  std::vector<at::Tensor> result() override;
  void synchronize() override {}
  bool wait(std::chrono::milliseconds timeout) override;
  void abort() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFutureResult() override;
  // Of the last one; 0 if there is none.
  uint64_t getSequencenumber() const override { return works_.empty() ? 0 : works_.back()->getSequencenumber(); }

 private:
  const std::vector<c10::intrusive_ptr<c10d::Work>> works_;
};

}  // namespace trireme::torch_ext
