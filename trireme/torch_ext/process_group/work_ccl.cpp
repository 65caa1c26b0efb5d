#include "trireme/torch_ext/process_group/work_ccl.h"

#include <c10/util/Exception.h>

#include <condition_variable>
#include <deque>
#include <limits>
#include <thread>

#include "trireme/base/error.h"
#include "trireme/ccl/bootstrap/per_process.h"
#include "trireme/torch_ext/process_group/errors.h"

namespace trireme::torch_ext {
namespace {

// Completes futures. Their callbacks are a program's own code: they may take the GIL, submit operations and wait for them (PowerSGD's waits for
// the future of another allreduce), so they run neither on a thread that drives operations nor with anything locked, and there is a
// further thread whenever all are held up in a callback. Never destroyed: a callback may be under way when the process ends.
class Heralds {
 public:
  static Heralds& instance() {
    static auto& heralds = *new ccl::PerProcess<Heralds>;
    return heralds.get();
  }

  void post(std::function<void()> news) {
    {
      std::lock_guard lock(mutex_);
      news_.push_back(std::move(news));
      if (news_.size() > idle_) {
        std::thread([this] { run(); }).detach();
        ++idle_;  // as good as waiting
      }
    }
    changed_.notify_one();
  }

 private:
  // Those that are idle stay, up to this number.
  static constexpr size_t kKept = 2;

  void run() {
    std::unique_lock lock(mutex_);
    while (idle_ <= kKept || !news_.empty()) {
      changed_.wait(lock, [&] { return !news_.empty(); });
      std::function<void()> next = std::move(news_.front());
      news_.pop_front();
      --idle_;
      lock.unlock();
      next();
      next = nullptr;
      lock.lock();
      ++idle_;
    }
    --idle_;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> news_;
  size_t idle_ = 0;  // that wait for news, or are about to
};

using FuturePtr = c10::intrusive_ptr<c10::ivalue::Future>;

FuturePtr make_tensors_future() { return c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get())); }

void complete(const FuturePtr& future, const std::vector<at::Tensor>& outputs, const std::exception_ptr& error) {
  if (error) future->setError(error);
  else future->markCompleted(c10::IValue(outputs));
}

template <class Error>
std::exception_ptr torch_error(const char* what) {
  return std::make_exception_ptr(Error({__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, what));
}

}  // namespace

// ---- errors

std::exception_ptr as_torch_error(const std::exception_ptr& error) {
  if (!error) return nullptr;
  try {
    std::rethrow_exception(error);
  } catch (const PeerLost& lost) {
    return torch_error<c10::DistNetworkError>(lost.what());
  } catch (const IoError& broken) {
    return torch_error<c10::DistNetworkError>(broken.what());
  } catch (const InvalidArgument& wrong) {
    return torch_error<c10::ValueError>(wrong.what());
  } catch (const Unsupported& unsupported) {
    return torch_error<c10::NotImplementedError>(unsupported.what());
  } catch (const Error& other) {
    return torch_error<c10::DistBackendError>(other.what());
  } catch (...) {
    return error;
  }
}

std::exception_ptr as_torch_connect_error(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const c10::DistError&) {
    return error;
  } catch (const c10::Error& store) {
    return torch_error<c10::DistStoreError>(store.what_without_backtrace());
  } catch (...) {
    return as_torch_error(error);
  }
}

// ---- completion

void Completion::operation_ended(const std::exception_ptr& error) {
  if (error) {
    std::lock_guard lock(mutex_);
    if (!error_) error_ = as_torch_error(error);
  }
  if (left_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  std::exception_ptr failure = this->error();
  if (!failure) {
    try {
      staging_.copy_back();
    } catch (...) {
      failure = std::current_exception();
    }
  }
  staging_ = Staging();
  if (at_end_) std::exchange(at_end_, nullptr)();
  FuturePtr future;
  {
    std::lock_guard lock(mutex_);
    error_ = failure;
    ended_ = true;
    future = future_;
  }
  if (future) Heralds::instance().post([future, outputs = outputs_, failure] { complete(future, outputs, failure); });
}

FuturePtr Completion::future() {
  std::unique_lock lock(mutex_);
  if (future_) return future_;
  future_ = make_tensors_future();
  if (!ended_) return future_;
  lock.unlock();
  complete(future_, outputs_, error_);  // nobody has attached anything to it yet
  return future_;
}

std::exception_ptr Completion::error() const {
  std::lock_guard lock(mutex_);
  return error_;
}

// ---- one work

bool WorkCCL::isCompleted() {
  for (ccl::Request& request : requests_) {
    try {
      if (!request.test()) return false;
    } catch (const Error&) {  // failed is completed too
    }
  }
  return true;
}

bool WorkCCL::isSuccess() const {
  for (const ccl::Request& request : requests_) {
    if (!request.finished()) return false;
  }
  return !completion_->error();
}

std::exception_ptr WorkCCL::exception() const { return completion_->error(); }

int WorkCCL::sourceRank() const {
  TORCH_CHECK(opType_ == c10d::OpType::RECVANYSOURCE, "sourceRank() may only be called on work objects that correspond to a recv from any source");
  return requests_.front().source();
}

std::vector<at::Tensor> WorkCCL::result() {
  TORCH_CHECK(isCompleted(), "ccl: ", c10d::opTypeToString(opType_), " is not complete; wait() before asking for its result");
  return completion_->outputs();
}

bool WorkCCL::wait(std::chrono::milliseconds timeout) {
  const Deadline deadline = timeout == kNoTimeout ? Deadline::never() : Deadline::after(timeout);
  for (ccl::Request& request : requests_) {
    bool complete = false;
    try {
      complete = request.wait_until(deadline);
    } catch (const Error&) {
      complete = true;  // the error is in completion_, as torch's
    }
    if (!complete) {
      auto communicator = communicator_.lock();
      C10_THROW_ERROR(DistBackendError, str("rank ", rank_, ": ", c10d::opTypeToString(opType_), " #", sequence_number_, ": not complete after ",
                                            static_cast<double>(timeout.count()) / 1000, " s of wait(timeout); timed out", communicator ? ": " + communicator->report() : ""));
    }
  }
  if (auto error = completion_->error()) std::rethrow_exception(error);
  return true;
}

void WorkCCL::abort() {
  if (auto communicator = communicator_.lock()) communicator->abort(str(c10d::opTypeToString(opType_), " #", sequence_number_, " was aborted"));
}

FuturePtr WorkCCL::getFuture() {
  FuturePtr future = completion_->future();
  // Whoever waits on a future cannot drive: torch's class has no place for it.
  for (ccl::Request& request : requests_) request.hand_over();
  return future;
}

FuturePtr WorkCCL::getFutureResult() {
  auto result = c10::make_intrusive<c10::ivalue::Future>(c10::IntType::get());
  getFuture()->addCallback([result](c10::ivalue::Future& future) {
    auto outcome = future.hasError() ? c10d::WorkResult::COMM_ERROR : c10d::WorkResult::SUCCESS;
    result->markCompleted(c10::IValue(static_cast<int64_t>(outcome)));
  });
  return result;
}

// ---- several

bool CoalescedWork::isCompleted() {
  for (const auto& work : works_) {
    if (!work->isCompleted()) return false;
  }
  return true;
}

bool CoalescedWork::isSuccess() const {
  for (const auto& work : works_) {
    if (!work->isSuccess()) return false;
  }
  return true;
}

std::exception_ptr CoalescedWork::exception() const {
  for (const auto& work : works_) {
    if (auto error = work->exception()) return error;
  }
  return nullptr;
}

std::vector<at::Tensor> CoalescedWork::result() {
  std::vector<at::Tensor> all;
  for (const auto& work : works_) {
    for (at::Tensor& tensor : work->result()) all.push_back(std::move(tensor));
  }
  return all;
}

bool CoalescedWork::wait(std::chrono::milliseconds timeout) {
  const Deadline deadline = timeout == kNoTimeout ? Deadline::never() : Deadline::after(timeout);
  for (const auto& work : works_) {
    // Zero would mean without end.
    work->wait(deadline.is_never() ? kNoTimeout : std::chrono::milliseconds(std::max(1, deadline.left_ms(std::numeric_limits<int>::max()))));
  }
  return true;
}

void CoalescedWork::abort() {
  if (!works_.empty()) works_.front()->abort();
}

FuturePtr CoalescedWork::getFuture() {
  auto all = make_tensors_future();
  auto left = std::make_shared<std::atomic<size_t>>(works_.size());
  auto finish = [all, works = works_] {
    std::vector<at::Tensor> outputs;
    std::exception_ptr error;
    for (const auto& work : works) {
      error = error ? error : work->exception();
      if (!error) {
        for (at::Tensor& tensor : work->result()) outputs.push_back(std::move(tensor));
      }
    }
    complete(all, outputs, error);
  };
  if (works_.empty()) finish();
  for (const auto& work : works_) {
    work->getFuture()->addCallback([left, finish](c10::ivalue::Future&) {
      if (left->fetch_sub(1) == 1) finish();
    });
  }
  return all;
}

}  // namespace trireme::torch_ext
