// How a communicator ends before its time: deadlines that pass, what a rank finds wrong or is told, abort().
#include <string>
#include <thread>

#include "trireme/base/error.h"
#include "trireme/ccl/comm/state.h"

namespace trireme::ccl {
namespace {

// A failed operation's buffers are the caller's again once the writes that peers have begun are over; each takes microseconds. A thread
// of this process that reads them may be in the midst of a large block; it cannot have died.
constexpr auto kWritersEnd = std::chrono::milliseconds(250), kReadersEnd = std::chrono::milliseconds(10000);
constexpr auto kFirstCause = std::chrono::milliseconds(200);

}  // namespace

// ---- deadlines

void CommunicatorState::check_deadlines() {
  if (collective_started_) check_deadline(*collectives_.front());
  for (const RequestPtr& message : messages_) check_deadline(*message);
  if (!earliest_queued_.passed()) return;
  // One that waits for its turn may have been given less time than the one before it.
  earliest_queued_ = Deadline::never();
  for (const RequestPtr& request : collectives_) {
    check_deadline(*request);
    earliest_queued_ = Deadline::earlier(earliest_queued_, request->deadline);
  }
}

void CommunicatorState::check_deadline(const RequestState& request) {
  if (engine_.failure() || !request.deadline.passed()) return;
  auto timeout = request.op.timeout.count() > 0 ? request.op.timeout : options_.timeout;
  const RequestState& running = is_message(request.op) ? request : *collectives_.front();
  auto name = [](const RequestState& one) { return str(ccl::describe(one.op), one.number ? str(": operation #", one.number) : ""); };
  fail(std::make_exception_ptr(Timeout(str("rank ", topology_.rank, ": ", name(request), ": not complete after ",
                                           static_cast<double>(timeout.count()) / 1000, " s",
                                           &running == &request ? "" : str("; its turn comes after ", name(running)), missing_ranks(running)))));
}

std::string CommunicatorState::missing_ranks(const RequestState& request) {
  std::string missing;
  for (int peer = 0; peer < node_->size() && !is_message(request.op); ++peer) {
    if (node_->progress_of(peer) < progress_value(request.number, kEntered)) {
      missing += (missing.empty() ? "" : ", ") + std::to_string(node_->global_rank(peer));
    }
  }
  std::string waits = engine_.describe_waits();
  // What is known of ranks of other hosts is what this rank waits for: those may be all that are missing, or not.
  std::string silent, heard;
  if (!is_message(request.op)) {
    for (const Messenger::Awaited& from : messenger_->awaited()) {
      std::string& list = from.heard ? heard : silent;
      list += str(list.empty() ? "" : ", ", "rank ", from.peer);
    }
  }
  if (!silent.empty()) waits = str(silent, ", of which nothing has come yet; others may be missing");
  else if (!heard.empty()) waits = str(heard, ", which called it and may itself wait for others");
  // A rank that is here may itself be held up by one that is not.
  for (int peer = 0; peer < node_->size(); ++peer) {
    int culprit = node_->waits_for(peer);
    if (peer != node_->rank() && culprit >= 0) waits += str("; rank ", node_->global_rank(peer), " waits for rank ", culprit);
  }
  return str(missing.empty() ? "" : "; these ranks of this host have not called it: " + missing, waits.empty() ? "" : "; waiting for ", waits,
             ". Is one of them slow, stopped or elsewhere in the program? The time allowed is the communicator's timeout.");
}

// ---- the first cause, to all

void CommunicatorState::fail(const std::exception_ptr& error) {
  PoisonNote note = PoisonNote::from(error);
  if (note.kind == PoisonNote::peer_lost || note.kind == PoisonNote::io_error) await_first_cause();
  poison(std::move(note), -1);
  await_users_of_buffers();
  engine_.fail(this->error());
  messenger_->forget_all();
}

void CommunicatorState::await_users_of_buffers() const { node_->await_others(kWritersEnd, kReadersEnd); }

// A connection that breaks may belong to a rank that has ended because another was lost, and word of that one may be a little slower.
void CommunicatorState::await_first_cause() {
  if (topology_.one_host()) return;
  Deadline patience = Deadline::after(kFirstCause);
  while (!poisoned_.load(std::memory_order_acquire) && !node_->poisoned() && !patience.passed()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

// Any thread. The first cause counts: what failed here may only be the consequence of what another rank has already told.
void CommunicatorState::poison(PoisonNote note, int except) {
  bool by_another = node_->poisoned();
  if (by_another) note = node_->poison_note();
  {
    std::lock_guard lock(poison_mutex_);
    if (!poison_) poison_ = note.to_exception();
  }
  poisoned_.store(true, std::memory_order_release);
  node_->poison(note);
  // Who found it tells the other hosts, by way of rank 0, which passes everything on.
  if (!told_.exchange(true) && (!by_another || topology_.rank == 0)) tell_others(note, except);
}

void CommunicatorState::abort(const std::string& reason) {
  if (in_forked_child()) return;
  poison({PoisonNote::aborted, topology_.rank, str("aborted by rank ", topology_.rank, reason.empty() ? "" : ": ", reason)}, -1);
  // If nobody drives, nobody would notice.
  interrupt();
  nudge();
}

std::exception_ptr CommunicatorState::error() {
  if (in_forked_child()) return nullptr;
  std::lock_guard lock(poison_mutex_);
  if (!poison_ && node_->poisoned()) {
    poison_ = node_->poison_note().to_exception();
    poisoned_.store(true, std::memory_order_release);
  }
  return poison_;
}

}  // namespace trireme::ccl
