#include "trireme/ccl/node/node.h"

#include <algorithm>
#include <cstring>
#include <thread>

#include "trireme/base/deadline.h"
#include "trireme/base/error.h"
#include "trireme/ccl/node/futex.h"

namespace trireme::ccl {

PoisonNote PoisonNote::from(const std::exception_ptr& error) {
  PoisonNote note;
  try {
    std::rethrow_exception(error);
  } catch (const PeerLost& e) {
    note = {peer_lost, e.rank(), e.what()};
  } catch (const Timeout& e) {
    note = {timeout, -1, e.what()};
  } catch (const Mismatch& e) {
    note = {mismatch, -1, e.what()};
  } catch (const Aborted& e) {
    note = {aborted, -1, e.what()};
  } catch (const std::exception& e) {
    note = {io_error, -1, e.what()};
  } catch (...) {
    note = {io_error, -1, "an exception of a type that is no std::exception"};
  }
  return note;
}

std::exception_ptr PoisonNote::to_exception() const {
  switch (kind) {
    case peer_lost:
      return std::make_exception_ptr(PeerLost(rank, text));
    case timeout:
      return std::make_exception_ptr(Timeout(text));
    case mismatch:
      return std::make_exception_ptr(Mismatch(text));
    case aborted:
      return std::make_exception_ptr(Aborted(text));
    case io_error:
      break;
  }
  return std::make_exception_ptr(IoError(text));
}

Node::Node(Engine& engine, Segment segment, int me, std::vector<int> global_ranks, PeerMemory memory)
    : engine_(engine),
      segment_(std::move(segment)),
      me_(me),
      global_ranks_(std::move(global_ranks)),
      memory_(std::move(memory)),
      waited_(global_ranks_.size()) {
  advance(progress_value(0, kEntered));
}

void Node::wake_sleepers() {
  // Either the sleeper sees this rank's progress when it looks once more, or we see it asleep.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  uint32_t bits = 0;
  bool ring = false;
  for (int word = 0; word < kMaxLocalRanks / 64 && word * 64 < size(); ++word) {
    uint64_t asleep = segment_.header().sleepers[word].load(std::memory_order_seq_cst);
    for (; asleep != 0; asleep &= asleep - 1) {
      int sleeper = word * 64 + __builtin_ctzll(asleep);
      if (sleeper == me_ || !satisfied(sleeper)) continue;
      if (segment_.sleep(sleeper).on_event_fd.load(std::memory_order_relaxed)) notify(sleeper);
      else bits |= futex_bit(sleeper), ring = true;
    }
  }
  if (ring) wake(bits, true);
}

// Whether what `sleeper` waits for has come true. It may have changed its mind meanwhile: a needless wake does no harm, and a needed
// one is never missed, since the last rank to advance sees all the others' progress.
bool Node::satisfied(int sleeper) const {
  const SleepLine& line = segment_.sleep(sleeper);
  int32_t peer = line.peer.load(std::memory_order_relaxed);
  uint64_t target = line.target.load(std::memory_order_relaxed);
  auto come = [&](int rank) { return segment_.progress(rank).value.load(std::memory_order_seq_cst) >= target; };
  if (peer == SleepLine::kAnything) return true;
  if (peer >= 0) return peer >= size() || come(peer);
  for (int rank = 0; rank < size(); ++rank) {
    if (!come(rank)) return false;
  }
  return true;
}

void Node::wake(uint32_t futex_bits, bool ring) {
  if (ring) segment_.header().bell.fetch_add(1, std::memory_order_seq_cst);
  futex_wake(segment_.header().bell, futex_bits);
}

void Node::notify(int peer) {
  uint64_t mask = uint64_t{1} << (peer % 64);
  if ((sleepers(peer).load(std::memory_order_seq_cst) & mask) == 0) return;
  if (!satisfied(peer)) return;
  if (segment_.sleep(peer).on_event_fd.load(std::memory_order_relaxed) && !event_fds_.empty()) {
    uint64_t one = 1;
    [[maybe_unused]] ssize_t written = ::write(event_fds_[peer].get(), &one, sizeof one);
  } else {
    wake(futex_bit(peer), true);
  }
}

void Node::wake_self() {
  wake(futex_bit(me_), true);
  if (!event_fds_.empty()) {
    uint64_t one = 1;
    [[maybe_unused]] ssize_t written = ::write(event_fds_[me_].get(), &one, sizeof one);
  }
}

void Node::sleep(const ProgressWait* only, const std::function<bool()>& ready, std::chrono::microseconds timeout) {
  uint32_t bell = segment_.header().bell.load(std::memory_order_seq_cst);
  SleepLine& line = segment_.sleep(me_);
  line.peer.store(only ? only->peer : SleepLine::kAnything, std::memory_order_relaxed);
  line.target.store(only ? only->target : 0, std::memory_order_relaxed);
  line.on_event_fd.store(0, std::memory_order_relaxed);
  sleepers(me_).fetch_or(uint64_t{1} << (me_ % 64), std::memory_order_seq_cst);
  if (!ready()) futex_wait(segment_.header().bell, bell, futex_bit(me_), timeout);
  end_sleep();
}

int Node::begin_poll_sleep() {
  SleepLine& line = segment_.sleep(me_);
  line.peer.store(SleepLine::kAnything, std::memory_order_relaxed);
  line.on_event_fd.store(1, std::memory_order_relaxed);
  sleepers(me_).fetch_or(uint64_t{1} << (me_ % 64), std::memory_order_seq_cst);
  return event_fds_[me_].get();
}

void Node::end_sleep() { sleepers(me_).fetch_and(~(uint64_t{1} << (me_ % 64)), std::memory_order_seq_cst); }

void Node::poison(const PoisonNote& note) {
  Poison& poison = segment_.header().poison;
  uint32_t expected = Poison::kNone;
  if (poison.state.compare_exchange_strong(expected, Poison::kWriting)) {
    poison.kind = note.kind;
    poison.rank = note.rank;
    size_t length = std::min(note.text.size(), sizeof poison.text - 1);
    std::memcpy(poison.text, note.text.data(), length);
    poison.text[length] = '\0';
    poison.state.store(Poison::kSet, std::memory_order_seq_cst);
  }
  wake(~0u, true);
  uint64_t one = 1;
  for (const ProcessFd& fd : event_fds_) [[maybe_unused]] ssize_t written = ::write(fd.get(), &one, sizeof one);
}

PoisonNote Node::poison_note() const {
  const Poison& poison = segment_.header().poison;
  return {static_cast<PoisonNote::Kind>(poison.kind), poison.rank, std::string(poison.text)};
}

void Node::throw_poison() const {
  // Whoever says why needs less than a microsecond, unless it is killed meanwhile.
  const Deadline deadline = Deadline::after(std::chrono::milliseconds(10));
  while (!poisoned() && !deadline.passed()) std::this_thread::yield();
  if (poisoned()) std::rethrow_exception(poison_note().to_exception());
  throw IoError("the communicator has failed, and the rank that was to say why is gone");
}

void Node::await_others(std::chrono::milliseconds writers_at_most, std::chrono::milliseconds readers_at_most) const {
  Deadline writers_end = Deadline::after(writers_at_most), readers_end = Deadline::after(readers_at_most);
  auto lowered = [](const std::atomic<uint32_t>& raised, Deadline deadline) {
    while (raised.load(std::memory_order_seq_cst) != 0 && !deadline.passed()) std::this_thread::yield();
  };
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == me_) continue;
    lowered(segment_.touching(peer).writing, writers_end);
    lowered(segment_.touching(peer).reading, readers_end);
  }
}

Node::Reached Node::reached(uint64_t value) { return Reached(*this, {ProgressWait::kEveryone, value}); }
Node::Reached Node::reached(int peer, uint64_t value) { return Reached(*this, {peer, value}); }

bool Node::Reached::ready() {
  if (wait_.peer >= 0) {
    blamed_ = wait_.peer;
    return node_.progress_of(wait_.peer) >= wait_.target;
  }
  while (cursor_ < node_.size() && node_.progress_of(cursor_) >= wait_.target) ++cursor_;
  if (cursor_ == node_.size()) return true;
  blamed_ = cursor_;
  return false;
}

void Node::Reached::await_resume() {
  if (since_ != std::chrono::steady_clock::time_point{} && blamed_ >= 0) {
    node_.waited_[blamed_] += std::chrono::steady_clock::now() - since_;
  }
  node_.engine_.until(*this).await_resume();
}

std::string Node::Reached::describe() const {
  std::string missing;
  for (int rank = 0; rank < node_.size(); ++rank) {
    if (wait_.peer >= 0 && rank != wait_.peer) continue;
    if (node_.progress_of(rank) < wait_.target) missing += (missing.empty() ? "" : ", ") + std::to_string(node_.global_rank(rank));
  }
  uint64_t step = wait_.target & ((uint64_t{1} << kStepBits) - 1);
  return str(step <= kEntered ? "entry" : "progress", " of rank ", missing.empty() ? "(just came)" : missing);
}

}  // namespace trireme::ccl
