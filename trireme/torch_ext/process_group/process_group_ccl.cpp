#include "trireme/torch_ext/process_group/process_group_ccl.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "trireme/base/error.h"
#include "trireme/base/log.h"
#include "trireme/torch_ext/process_group/errors.h"
#include "trireme/torch_ext/process_group/submission.h"
#include "trireme/torch_ext/process_group/threads.h"

namespace trireme::torch_ext {
namespace {

using std::chrono::milliseconds;

// How long shutdown() lets operations that nobody waited for complete, and then those that it aborted. A group that is dropped without it is most
// likely taken down by an exception: what it waits for will not come, and the other ranks wait for word of its end.
constexpr milliseconds kDrainTime{10000}, kDroppedDrainTime{2000};
constexpr milliseconds kAbortTime{5000};

// When a coalescing window has grown to this, and each time that it has doubled, it may have been left open.
constexpr size_t kLargeWindow = 128;

// A c10d store through the two calls that the meeting of the ranks needs. check() comes first because get() waits for the key.
std::shared_ptr<ccl::Store> meeting_place(const c10::intrusive_ptr<c10d::Store>& store) {
  if (!store) return nullptr;
  auto get = [store](const std::string& key) {
    if (!store->check({key})) return std::string();
    std::vector<uint8_t> value = store->get(key);
    return std::string(value.begin(), value.end());
  };
  auto set = [store](const std::string& key, const std::string& value) { store->set(key, std::vector<uint8_t>(value.begin(), value.end())); };
  return ccl::make_callback_store(get, set);
}

std::shared_ptr<ccl::Communicator> connect(const std::shared_ptr<ccl::Store>& store, int rank, int size, milliseconds timeout, const GroupRanks& ranks) {
  ccl::CommunicatorOptions options;
  options.timeout = options.connect_timeout = timeout;
  options.name = "ccl";
  try {
    return ccl::Communicator::create(size, rank, store, options);
  } catch (...) {
    std::rethrow_exception(as_torch_connect_error(std::current_exception(), ranks));
  }
}

size_t bytes_of(const std::vector<at::Tensor>& tensors) {
  size_t bytes = 0;
  for (const at::Tensor& tensor : tensors) bytes += tensor.layout() == at::kStrided ? static_cast<size_t>(tensor.nbytes()) : 0;
  return bytes;
}

// When a group has come up: what the rest of the process should know about it.
void prepare_process(ccl::Communicator& communicator, const GroupRanks& ranks) {
  // DDP asks the backend for its buckets only if this says so. Once: the variable is the program's afterwards.
  static const bool told = (setenv("DDP_DISABLE_COMM_MEM", "0", 0), true);
  static_cast<void>(told);
  with_torch_errors(ranks, [&] { settle_threads(communicator); });
}

}  // namespace

ProcessGroupCCL::ProcessGroupCCL(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size, c10::intrusive_ptr<Options> options)
    : ProcessGroupCCL(meeting_place(store), rank, size, std::move(options)) {}

ProcessGroupCCL::ProcessGroupCCL(const std::shared_ptr<ccl::Store>& store, int rank, int size, c10::intrusive_ptr<Options> options)
    : Backend(rank, size),
      options_(std::move(options)),
      ranks_(std::make_shared<GroupRanks>(options_->group_name, options_->global_ranks_in_group)),
      timeout_ms_(options_->timeout.count()),
      communicator_(connect(store, rank, size, options_->timeout, *ranks_)) {
  prepare_process(*communicator_, *ranks_);
  init();
}

ProcessGroupCCL::~ProcessGroupCCL() {
  try {
    end(kDroppedDrainTime);
  } catch (const std::exception& error) {
    log(LogLevel::warn, str("rank ", rank_, ": while a group ended: ", error.what()));
  }
}

std::shared_ptr<ccl::Communicator> ProcessGroupCCL::communicator() const {
  std::lock_guard lock(mutex_);
  if (!communicator_) C10_THROW_ERROR(DistBackendError, str("rank ", rank_, ": the process group was shut down; make a new one"));
  return communicator_;
}

c10::intrusive_ptr<c10d::Backend::Options> ProcessGroupCCL::getBackendOptions() {
  auto options = c10::make_intrusive<Options>(*options_);
  options->timeout = milliseconds(timeout_ms_);
  return options;
}

// ---- submitting

c10::intrusive_ptr<WorkCCL> ProcessGroupCCL::submit(Submission submission) {
  std::shared_ptr<ccl::Communicator> communicator = this->communicator();
  const bool is_message = c10d::isP2POp(submission.type);
  auto work = c10::make_intrusive<WorkCCL>(rank_, submission.type, submission.title, submission.inputs);
  const size_t bytes = std::max(bytes_of(submission.inputs), bytes_of(submission.outputs));
  auto completion = std::make_shared<Completion>(static_cast<int>(submission.operations.size()), std::move(submission.staging),
                                                 std::move(submission.outputs), ranks_, load_, bytes);
  if (timing_) completion->take_time();
  if (work->recordFunctionEndCallback_) completion->at_end(work->recordFunctionEndCallback_);
  work->completion_ = completion;
  work->ranks_ = ranks_;
  work->load_ = load_;
  work->communicator_ = communicator;
  // Messages have no order among themselves and collectives: what is copied is as the caller has it now.
  if (is_message) completion->start();
  else if (completion->has_to_start()) submission.operations.front().on_start = [completion] { completion->start(); };
  const milliseconds timeout = submission.timeout == c10d::kUnsetTimeout ? milliseconds(timeout_ms_) : submission.timeout;
  for (ccl::Operation& op : submission.operations) {
    op.timeout = timeout;
    op.caller_waits = !submission.is_async;
    op.on_finished = [completion](const std::exception_ptr& error) mutable { Completion::operation_ended(std::move(completion), error); };
    work->requests_.push_back(with_torch_errors(*ranks_, [&] { return communicator->submit(std::move(op)); }));
    if (!work->requests_.back().finished()) remember(work->requests_.back());
    work->sequence_number_ = is_message ? sequence_number_.load() : ++sequence_number_;  // what was refused does not count
  }
  join_window(work);
  return work;
}

void ProcessGroupCCL::join_window(const c10::intrusive_ptr<WorkCCL>& work) {
  std::vector<c10::intrusive_ptr<WorkCCL>> dropped;  // when nothing is locked any more: tensors of Python's may go with them
  std::lock_guard lock(mutex_);
  if (!coalescing_) return;
  // torch leaves a window open whose body raised: what goes on after that must not pile up in it. By then callers ask for their works one by one, which
  // those within a window leave to its end.
  const size_t size = coalescing_->size();
  if (size >= kLargeWindow && std::has_single_bit(size)) {
    auto is_of_use = [](const auto& old) { return !old->was_asked_for() || !old->isSuccess(); };
    auto ended = std::stable_partition(coalescing_->begin(), coalescing_->end(), is_of_use);
    dropped.assign(std::make_move_iterator(ended), std::make_move_iterator(coalescing_->end()));
    coalescing_->erase(ended, coalescing_->end());
  }
  coalescing_->push_back(work);
}

// For shutdown(), which must not leave while something is under way that nobody holds any more.
void ProcessGroupCCL::remember(const ccl::Request& request) {
  std::lock_guard lock(mutex_);
  if (pending_.size() >= prune_at_) {
    std::erase_if(pending_, [](const ccl::Request& old) { return old.finished(); });
    prune_at_ = std::max<size_t>(64, 2 * pending_.size());
  }
  pending_.push_back(request);
}

bool ProcessGroupCCL::drain(Deadline deadline) {
  std::vector<ccl::Request> pending;
  {
    std::lock_guard lock(mutex_);
    pending = pending_;  // which stay: another thread may drain them meanwhile
  }
  for (ccl::Request& request : pending) {
    try {
      if (!request.wait_until(deadline)) return false;
    } catch (const Error&) {  // failed, and so no longer under way; whoever waits for it is told
    }
  }
  return true;
}

void ProcessGroupCCL::waitForPendingWorks() {
  const milliseconds timeout(timeout_ms_);
  if (drain(Deadline::after(timeout))) return;
  C10_THROW_ERROR(DistBackendError, ranks_->explain(str("rank ", rank_, ": operations are still under way after ", static_cast<double>(timeout.count()) / 1000,
                                                        " s of waitForPendingWorks(); timed out: ", communicator()->report())));
}

// ---- coalescing

void ProcessGroupCCL::startCoalescing() {
  std::optional<std::vector<c10::intrusive_ptr<WorkCCL>>> left_open(std::in_place);
  std::lock_guard lock(mutex_);
  coalescing_.swap(left_open);  // which goes when nothing is locked any more
}

c10::intrusive_ptr<c10d::Work> ProcessGroupCCL::endCoalescing() {
  std::lock_guard lock(mutex_);
  TORCH_CHECK(coalescing_, "ccl: endCoalescing() without startCoalescing()");
  std::vector<c10::intrusive_ptr<c10d::Work>> works(coalescing_->begin(), coalescing_->end());
  coalescing_.reset();
  return c10::make_intrusive<CoalescedWork>(rank_, std::move(works));
}

// ---- groups of a group

c10::intrusive_ptr<c10d::Backend> ProcessGroupCCL::split(const c10::intrusive_ptr<c10d::Store>& store, const std::vector<int>& ranks,
                                                         const c10::intrusive_ptr<c10d::Backend::Options>& opts) {
  for (int rank : ranks) {
    TORCH_CHECK_VALUE(rank >= 0 && rank < size_, "ccl: split: unexpected rank ", rank, ": the ranks of this group go from 0 to ", size_ - 1);
  }
  auto mine = std::find(ranks.begin(), ranks.end(), rank_);
  if (mine == ranks.end()) return nullptr;
  auto options = c10::make_intrusive<Options>(opts ? opts->timeout : milliseconds(timeout_ms_));
  if (opts) {
    options->group_name = opts->group_name;
    options->group_desc = opts->group_desc;
  }
  options->global_ranks_in_group.clear();
  for (int rank : ranks) {
    const auto& global = options_->global_ranks_in_group;
    options->global_ranks_in_group.push_back(global.empty() ? static_cast<uint64_t>(rank) : global[static_cast<size_t>(rank)]);
  }
  return c10::make_intrusive<ProcessGroupCCL>(store, static_cast<int>(mine - ranks.begin()), static_cast<int>(ranks.size()), options);
}

c10::intrusive_ptr<c10d::Backend> ProcessGroupCCL::merge(const c10::intrusive_ptr<c10d::Store>& store,
                                                         const c10::intrusive_ptr<c10d::Backend::Options>& opts, const int& rank, const int& size) {
  auto options = c10::make_intrusive<Options>(opts ? opts->timeout : milliseconds(timeout_ms_));
  if (opts) {
    options->group_name = opts->group_name;
    if (opts->global_ranks_in_group.size() == static_cast<size_t>(size)) options->global_ranks_in_group = opts->global_ranks_in_group;
  }
  return c10::make_intrusive<ProcessGroupCCL>(store, rank, size, options);
}

// ---- memory

at::Tensor ProcessGroupCCL::allocateTensor(long size, at::TensorOptions options) {
  TORCH_CHECK_VALUE(size >= 0, "ccl: allocateTensor: a size of ", size);
  TORCH_CHECK_VALUE(options.device().is_cpu(), "ccl: allocateTensor: the device is ", options.device(), "; only the CPU's memory can be shared");
  const size_t bytes = static_cast<size_t>(size) * options.dtype().itemsize();
  if (bytes == 0) return at::empty({size}, options);
  void* data = nullptr;
  try {
    data = ccl::Communicator::allocate_shared(bytes);
  } catch (const Error& error) {
    C10_THROW_ERROR(OutOfMemoryError, str("ccl: allocateTensor: ", bytes, " bytes of shared memory are not to be had: ", error.what()));
  }
  return at::from_blob(data, {size}, [](void* memory) { ccl::Communicator::release_shared(memory); }, options);
}

// ---- the end

c10d::ErrorType ProcessGroupCCL::getError() {
  std::shared_ptr<ccl::Communicator> communicator;
  {
    std::lock_guard lock(mutex_);
    communicator = communicator_;
  }
  std::exception_ptr error = communicator ? communicator->error() : nullptr;
  if (!error) return c10d::ErrorType::SUCCESS;
  try {
    std::rethrow_exception(error);
  } catch (const Timeout&) {
    return c10d::ErrorType::TIMEOUT;
  } catch (const PeerLost&) {
    return c10d::ErrorType::REMOTE_ERROR;
  } catch (...) {
    return c10d::ErrorType::COMM_ERROR;
  }
}

void ProcessGroupCCL::abort() {
  std::shared_ptr<ccl::Communicator> communicator;
  {
    std::lock_guard lock(mutex_);
    communicator = communicator_;
  }
  if (communicator) communicator->abort("the program called abort() on its process group");
}

void ProcessGroupCCL::shutdown() { end(kDrainTime); }

void ProcessGroupCCL::end(milliseconds drain_time) {
  std::shared_ptr<ccl::Communicator> communicator;
  {
    std::lock_guard lock(mutex_);
    communicator = std::exchange(communicator_, nullptr);
  }
  if (!communicator) return;
  if (!drain(Deadline::after(drain_time))) {
    log(LogLevel::warn, str("rank ", rank_, ": the process group is shut down while operations are under way: ", communicator->report()));
    communicator->abort("its process group was shut down while operations were under way");
    drain(Deadline::after(kAbortTime));
  }
}

}  // namespace trireme::torch_ext
