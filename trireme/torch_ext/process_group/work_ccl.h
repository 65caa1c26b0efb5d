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

#include "trireme/ccl/comm/communicator.h"
#include "trireme/torch_ext/process_group/errors.h"
#include "trireme/torch_ext/process_group/tensors.h"

namespace trireme::torch_ext {

// What the communicator keeps of a work until its operations are complete, whether or not somebody still holds the work: the tensors, what is
// to be done at the end, and the future if somebody has asked for it. Threads share it.
class Completion {
 public:
  Completion(int operations, Staging staging, std::vector<at::Tensor> outputs, std::shared_ptr<const GroupRanks> ranks)
      : ranks_(std::move(ranks)), left_(operations), staging_(std::move(staging)), outputs_(std::move(outputs)) {}

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
  std::function<void()> at_end_;
  std::optional<std::chrono::steady_clock::time_point> started_;
  mutable std::mutex mutex_;
  bool ended_ = false;
  c10d::WorkResult outcome_ = c10d::WorkResult::SUCCESS;
  std::exception_ptr error_;
  std::optional<std::chrono::steady_clock::duration> duration_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

// Owns nothing that the operations need: dropping it cancels nothing. Threads may share it. wait() blocks, and drives the operations itself;
// nothing else blocks.
class WorkCCL : public c10d::Work {
 public:
  WorkCCL(int rank, c10d::OpType type, const char* title, uint64_t sequence_number, const std::vector<at::Tensor>& inputs)
      : Work(rank, type, title, inputs), sequence_number_(sequence_number) {}

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
  const uint64_t sequence_number_;
  std::vector<ccl::Request> requests_;
  std::shared_ptr<Completion> completion_;
  std::shared_ptr<const GroupRanks> ranks_;
  std::weak_ptr<ccl::Communicator> communicator_;  // a work must not keep a group from ending
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
