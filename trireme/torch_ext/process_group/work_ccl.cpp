#include "trireme/torch_ext/process_group/work_ccl.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <cctype>
#include <condition_variable>
#include <deque>
#include <limits>
#include <set>
#include <system_error>
#include <thread>

#include "trireme/base/error.h"
#include "trireme/base/log.h"
#include "trireme/ccl/bootstrap/per_process.h"
#include "trireme/ccl/comm/workers.h"
#include "trireme/torch_ext/process_group/errors.h"

namespace trireme::torch_ext {
namespace {

// Threads for what must run neither on a thread that drives operations nor with anything locked: at most `kMost`, and a further one whenever all are held
// up. Never destroyed: something may be under way when the process ends.
template <size_t kMost>
class Heralds {
 public:
  static Heralds& instance() {
    static auto& heralds = *new ccl::PerProcess<Heralds>;
    return heralds.get();
  }

  void post(std::function<void()> news) {
    std::unique_lock lock(mutex_);
    news_.push_back(std::move(news));
    if (leaks_) return;
    if (news_.size() > idle_ && threads_ < kMost && !start_thread() && threads_ == 0) {
      run_first(lock);
      return;
    }
    lock.unlock();
    changed_.notify_one();
  }

  // From now on nothing is begun any more; waits, for a while, for what is under way.
  void leak() {
    std::unique_lock lock(mutex_);
    leaks_ = true;
    settle(lock);
  }
  // Waits, for a while, until everything is done.
  void settle() {
    std::unique_lock lock(mutex_);
    settle(lock);
  }

 private:
  // Those that are idle stay, up to this number.
  static constexpr size_t kKept = 2;
  static constexpr std::chrono::seconds kPatience{2};

  // False where the system has no more of them: then those that there are do it all, one after the other.
  bool start_thread() {
    try {
      std::thread([this] { run(); }).detach();
    } catch (const std::system_error& error) {
      log(LogLevel::warn, str("no further thread for what follows operations: ", error.what()));
      return false;
    }
    ++threads_;
    ++idle_;  // as good as waiting
    return true;
  }

  void run() {
    std::unique_lock lock(mutex_);
    while (idle_ <= kKept || !nothing_to_do()) {
      changed_.wait(lock, [&] { return !nothing_to_do(); });
      --idle_;
      run_first(lock);
      lock.lock();
      ++idle_;
      settled_.notify_all();
    }
    --idle_;
    --threads_;
  }

  // Unlocks.
  void run_first(std::unique_lock<std::mutex>& lock) {
    std::function<void()> next = std::move(news_.front());
    news_.pop_front();
    lock.unlock();
    try {
      next();
    } catch (const std::exception& error) {  // torch passes on what addCallback's functions throw
      log(LogLevel::error, str("a callback of a future threw: ", error.what()));
    }
  }

  void settle(std::unique_lock<std::mutex>& lock) {
    settled_.wait_for(lock, kPatience, [&] { return idle_ == threads_ && nothing_to_do(); });
  }

  bool nothing_to_do() const { return leaks_ || news_.empty(); }

  std::mutex mutex_;
  std::condition_variable changed_, settled_;
  std::deque<std::function<void()>> news_;
  size_t threads_ = 0, idle_ = 0;  // idle: they wait for news, or are about to
  bool leaks_ = false;
};

// The callbacks of futures are a program's own code: they may take the GIL, submit operations and wait for them (PowerSGD's waits for the future of another
// allreduce), so no number of threads is enough for all.
using Callbacks = Heralds<std::numeric_limits<size_t>::max()>;
// Letting go of a tensor of Python's takes the GIL, and waits for nothing else.
using LettingGo = Heralds<1>;

using FuturePtr = c10::intrusive_ptr<c10::ivalue::Future>;

FuturePtr make_tensors_future() { return c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get())); }

void complete(const FuturePtr& future, const std::vector<at::Tensor>& outputs, const std::exception_ptr& error) {
  if (error) future->setError(error);
  else future->markCompleted(c10::IValue(outputs));
}

FuturePtr make_result_future() { return c10::make_intrusive<c10::ivalue::Future>(c10::IntType::get()); }

void complete(const FuturePtr& future, c10d::WorkResult outcome) { future->markCompleted(c10::IValue(static_cast<int64_t>(outcome))); }

// Calls `then` when all are complete: at once, or on a thread that completes the last one.
void when_all(const std::vector<FuturePtr>& futures, std::function<void()> then) {
  if (futures.empty()) return then();
  auto left = std::make_shared<std::atomic<size_t>>(futures.size());
  for (const FuturePtr& future : futures) {
    future->addCallback([left, then](c10::ivalue::Future&) {
      if (left->fetch_sub(1) == 1) then();
    });
  }
}

template <class Error>
std::exception_ptr torch_error(const std::string& what) {
  return std::make_exception_ptr(Error({__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, what));
}

// The whole numbers in a text.
std::set<uint64_t> numbers_in(const std::string& text) {
  std::set<uint64_t> numbers;
  for (size_t at = 0; at < text.size();) {
    size_t end = at;
    while (end < text.size() && std::isdigit(static_cast<unsigned char>(text[end])) != 0) ++end;
    if (end > at && end - at < 10) numbers.insert(std::stoull(text.substr(at, end - at)));
    at = std::max(end, at + 1);
  }
  return numbers;
}

}  // namespace

// ---- errors

std::string GroupRanks::explain(const std::string& text) const {
  const std::set<uint64_t> named = numbers_in(text);
  std::string explained;
  for (size_t rank = 0; rank < global_.size(); ++rank) {
    if (global_[rank] == rank || !named.contains(rank)) continue;
    explained += str(explained.empty() ? str(" (in group ", group_, ", ") : ", ", "rank ", rank, " is global rank ", global_[rank]);
  }
  return explained.empty() ? text : text + explained + ")";
}

std::exception_ptr as_torch_error(const std::exception_ptr& error, const GroupRanks& ranks) {
  if (!error) return nullptr;
  try {
    std::rethrow_exception(error);
  } catch (const PeerLost& lost) {
    return torch_error<c10::DistNetworkError>(ranks.explain(lost.what()));
  } catch (const IoError& broken) {
    return torch_error<c10::DistNetworkError>(ranks.explain(broken.what()));
  } catch (const InvalidArgument& wrong) {
    return torch_error<c10::ValueError>(wrong.what());
  } catch (const Unsupported& unsupported) {
    return torch_error<c10::NotImplementedError>(unsupported.what());
  } catch (const Error& other) {
    return torch_error<c10::DistBackendError>(ranks.explain(other.what()));
  } catch (...) {
    return error;
  }
}

std::exception_ptr as_torch_connect_error(const std::exception_ptr& error, const GroupRanks& ranks) {
  try {
    std::rethrow_exception(error);
  } catch (const c10::DistError&) {
    return error;
  } catch (const c10::Error& store) {
    return torch_error<c10::DistStoreError>(store.what_without_backtrace());
  } catch (...) {
    return as_torch_error(error, ranks);
  }
}

// ---- completion

void Completion::operation_ended(std::shared_ptr<Completion> completion, const std::exception_ptr& error) {
  completion->end_one(error);
  if (completion->left_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  FuturePtr future = completion->end();
  auto let_go = [future, completion] {
    if (future) complete(future, completion->outputs_, completion->error());
    completion->staging_ = Staging();
  };
  completion.reset();
  if (future) Callbacks::instance().post(std::move(let_go));
  else if (ccl::Workers::is_this_thread()) LettingGo::instance().post(std::move(let_go));
  else let_go();
}

// A thread that waits for the GIL while Python ends is ended by it in the middle, and with it, as tensors let go in destructors, the process.
void let_go_no_more() {
  Callbacks::instance().settle();
  LettingGo::instance().leak();
}

void Completion::end_one(const std::exception_ptr& error) {
  std::lock_guard lock(mutex_);
  if (!error || error_) return;
  error_ = as_torch_error(error, *ranks_);
  outcome_ = c10d::WorkResult::COMM_ERROR;
  try {
    std::rethrow_exception(error);
  } catch (const Timeout&) {
    outcome_ = c10d::WorkResult::TIMEOUT;
  } catch (...) {
  }
}

FuturePtr Completion::end() {
  std::exception_ptr failure = error();
  if (!failure) {
    try {
      staging_.copy_back();
    } catch (...) {
      failure = std::current_exception();
    }
  }
  if (at_end_) std::exchange(at_end_, nullptr)();
  load_->remove(std::exchange(bytes_, 0));
  std::lock_guard lock(mutex_);
  if (failure && !error_) outcome_ = c10d::WorkResult::UNKNOWN;
  error_ = failure;
  if (started_) duration_ = std::chrono::steady_clock::now() - *started_;
  ended_ = true;
  return future_;
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

bool Completion::ended() const {
  std::lock_guard lock(mutex_);
  return ended_;
}

c10d::WorkResult Completion::outcome() const {
  std::lock_guard lock(mutex_);
  return outcome_;
}

std::optional<std::chrono::steady_clock::duration> Completion::duration() const {
  std::lock_guard lock(mutex_);
  return duration_;
}

// ---- one work

bool WorkCCL::isCompleted() {
  was_asked_for_ = true;
  if (load_->is_for_workers() && !completion_->ended()) {
    // Once is enough, as a worker stays until nothing is left; who polls without a pause would keep it from its work.
    const int64_t process = ccl::fork_generation();
    if (handed_over_in_ != process) {
      hand_over();
      handed_over_in_ = process;
    }
    return completion_->ended();
  }
  for (ccl::Request& request : requests_) {
    if (completion_->ended()) break;
    try {
      if (!request.test()) return false;
    } catch (const Error&) {
      check_failed();  // failed is completed too
    }
  }
  return true;
}

// To be called while an error is handled. In a forked child a request throws that it is the parent's, and no operation has failed.
void WorkCCL::check_failed() const {
  if (!completion_->error()) std::rethrow_exception(as_torch_error(std::current_exception(), *ranks_));
}

bool WorkCCL::isSuccess() const { return completion_->ended() && !completion_->error(); }

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
  was_asked_for_ = true;
  const Deadline deadline = timeout == kNoTimeout ? Deadline::never() : Deadline::after(timeout);
  for (ccl::Request& request : requests_) {
    bool complete = false;
    try {
      complete = request.wait_until(deadline);
    } catch (const Error&) {
      check_failed();
      complete = true;  // the error is in completion_, as torch's
    }
    if (!complete) {
      auto communicator = communicator_.lock();
      // The library's report has numbers of its own, which count what a group does for itself, too.
      const std::string what = str("rank ", rank_, ": ", c10d::opTypeToString(opType_), ": not complete after ",
                                   static_cast<double>(timeout.count()) / 1000, " s of wait(timeout); timed out",
                                   communicator ? ": " + communicator->report() : "");
      C10_THROW_ERROR(DistBackendError, ranks_->explain(what));
    }
  }
  if (auto error = completion_->error()) std::rethrow_exception(error);
  return true;
}

void WorkCCL::abort() {
  if (auto communicator = communicator_.lock()) communicator->abort(str("the program aborted its ", c10d::opTypeToString(opType_)));
}

FuturePtr WorkCCL::getFuture() {
  was_asked_for_ = true;
  FuturePtr future = completion_->future();
  // Whoever waits on a future cannot drive: torch's class has no place for it.
  hand_over();
  return future;
}

void WorkCCL::hand_over() {
  with_torch_errors(*ranks_, [&] {
    for (ccl::Request& request : requests_) request.hand_over();
  });
}

FuturePtr WorkCCL::getFutureResult() {
  auto result = make_result_future();
  getFuture()->addCallback([result, completion = completion_](c10::ivalue::Future&) { complete(result, completion->outcome()); });
  return result;
}

float WorkCCL::getDuration() const {
  const auto duration = completion_->duration();
  TORCH_CHECK(duration, "ccl: ", c10d::opTypeToString(opType_), " #", sequence_number_,
              " has no duration: it is not complete, or enableCollectivesTiming() was not called before it");
  return std::chrono::duration<float, std::milli>(*duration).count();
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
  std::vector<FuturePtr> parts;
  for (const auto& work : works_) parts.push_back(work->getFuture());
  auto all = make_tensors_future();
  when_all(parts, [all, parts] {
    std::vector<at::Tensor> outputs;
    std::exception_ptr error;
    for (const FuturePtr& part : parts) {
      if (part->hasError()) {
        error = error ? error : part->exception_ptr();
        continue;
      }
      for (const at::Tensor& tensor : part->constValue().toTensorVector()) outputs.push_back(tensor);
    }
    complete(all, outputs, error);
  });
  return all;
}

FuturePtr CoalescedWork::getFutureResult() {
  std::vector<FuturePtr> parts;
  for (const auto& work : works_) parts.push_back(work->getFutureResult());
  auto all = make_result_future();
  when_all(parts, [all, parts] {
    auto failed = std::find_if(parts.begin(), parts.end(), [](const FuturePtr& part) { return part->constValue().toInt() != 0; });
    complete(all, failed == parts.end() ? c10d::WorkResult::SUCCESS : static_cast<c10d::WorkResult>((*failed)->constValue().toInt()));
  });
  return all;
}

}  // namespace trireme::torch_ext
