// The ranks of one communicator on one host, meeting in shared memory.
//
// Every rank has one number that only grows: its progress, the number of its current operation in the upper bits and the step it has completed in
// the lower ones. All synchronisation is "wait until rank r's progress is at least x". Since all ranks run the same operations in the same order, they agree
// on what each step means.
//
// A rank is never more than one operation ahead of another on its host: it enters operation n only when all have entered n - 1, and so have
// finished n - 2. That is why two records and two inline slots per rank, used in turn, are enough and small operations need no closing barrier.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "trireme/base/fd.h"
#include "trireme/ccl/engine/engine.h"
#include "trireme/ccl/node/peer_memory.h"
#include "trireme/ccl/node/segment.h"

namespace trireme::ccl {

// Steps of operation `number`, as progress values.
inline constexpr int kStepBits = 24;
inline uint64_t progress_value(uint64_t number, uint64_t step) { return (number << kStepBits) | step; }
inline constexpr uint64_t kEntered = 1;
// Of a rank that has left in good order: it keeps nobody waiting, and its records show that it did not come.
inline constexpr uint64_t kLeft = UINT64_MAX;

// What ends a communicator, in the form in which it is told to the other ranks.
struct PoisonNote {
  enum Kind : uint32_t { peer_lost, timeout, io_error, mismatch, aborted };
  Kind kind = aborted;
  int rank = -1;
  std::string text;

  static PoisonNote from(const std::exception_ptr& error);
  std::exception_ptr to_exception() const;
};

// Owns the segment. Its methods are for the thread that drives the communicator, but for those said to be for any thread.
class Node {
 public:
  Node(Engine& engine, Segment segment, int me, std::vector<int> global_ranks, PeerMemory memory);

  int rank() const { return me_; }
  int size() const { return segment_.ranks(); }
  int global_rank(int local) const { return global_ranks_[local]; }
  const Segment& segment() const { return segment_; }
  PeerMemory& memory() { return memory_; }

  uint64_t progress_of(int peer) const { return segment_.progress(peer).value.load(std::memory_order_acquire); }
  // Publishes this rank's progress and everything written before, and wakes those who slept for it.
  void advance(uint64_t value) {
    show(value);
    wake_sleepers();
  }
  // The same in two steps, for who has something to look at in between: the second one has to wait until the first is out of this core.
  void show(uint64_t value) { segment_.progress(me_).value.store(value, std::memory_order_release); }
  void wake_sleepers();

  // co_await node.reached(value): every local rank has come that far. co_await node.reached(peer, value): that one has.
  class Reached;
  Reached reached(uint64_t value);
  Reached reached(int peer, uint64_t value);

  // Wakes `peer` if it sleeps for anything: after writing to a stream.
  void notify(int peer);
  // Wakes this rank's own sleeping driver. Any thread.
  void wake_self();

  // Sleeps until woken or timed out, unless `ready` holds after the sleep was announced. `only` narrows what wakes it.
  void sleep(const ProgressWait* only, const std::function<bool()>& ready, std::chrono::microseconds timeout);
  // The same for a rank that must also wait on descriptors: announces the sleep; the caller polls `event_fd` too, then calls end_sleep.
  int begin_poll_sleep();
  void end_sleep();
  // The peers' event descriptors, for communicators that span hosts.
  void set_event_fds(std::vector<ProcessFd> fds) { event_fds_ = std::move(fds); }

  // Why this rank is late, for the others' messages: the rank (of any host) whose message it waits for, or -1.
  void set_waits_for(int rank) { segment_.sleep(me_).waits_for.store(rank + 1, std::memory_order_relaxed); }
  int waits_for(int peer) const { return segment_.sleep(peer).waits_for.load(std::memory_order_relaxed) - 1; }

  // The first note wins. Any thread.
  void poison(const PoisonNote& note);
  bool poisoned() const { return segment_.header().poison.state.load(std::memory_order_seq_cst) == Poison::kSet; }
  PoisonNote poison_note() const;
  // From the moment on at which a rank begins to say why: its caller may be given its buffers back.
  bool fails() const { return segment_.header().poison.state.load(std::memory_order_seq_cst) != Poison::kNone; }
  [[noreturn]] void throw_poison() const;

  // Writes into a peer's buffer go through here. Once the communicator has failed a rank's caller may reuse its buffers, so from then
  // on nobody writes: this throws what ended it, and who fails waits for the writes that have begun. Keep each one short.
  template <class Write>
  void write_to_peers(const Write& write) {
    // Sequentially consistent on both sides: either the writer sees the poison, or who poisoned sees the flag.
    std::atomic<uint32_t>& raised = segment_.touching(me_).writing;
    raised.store(1, std::memory_order_seq_cst);
    Lowered lowered{raised};
    if (fails()) throw_poison();
    write();
  }
  // Steps of operations, which may read peers' buffers, go through here. Between processes the kernel refuses what is no longer there. Threads of one
  // process read through plain pointers, so for them the rule is the same as for writing.
  template <class Step>
  auto read_from_peers(const Step& step) {
    if (memory_.access() != PeerMemory::Access::same_process) return step();
    std::atomic<uint32_t>& raised = segment_.touching(me_).reading;
    raised.store(1, std::memory_order_seq_cst);
    Lowered lowered{raised};
    // What goes on in an engine that has failed only ends; it reads nothing.
    if (fails() && !engine_.failure()) throw_poison();
    return step();
  }
  // After poison(), or advance(kLeft): until no other rank writes, or reads as a thread of this process, or the time is up (a rank killed in the middle of writing leaves its
  // flag up). Not from within a write or a step.
  void await_others(std::chrono::milliseconds writers_at_most, std::chrono::milliseconds readers_at_most) const;

  // How long this rank has waited for each local rank.
  const std::vector<std::chrono::nanoseconds>& waited() const { return waited_; }

 private:
  struct Lowered {
    std::atomic<uint32_t>& raised;
    ~Lowered() { raised.store(0, std::memory_order_release); }
  };
  bool satisfied(int sleeper) const;
  void wake(uint32_t futex_bits, bool ring);
  static uint32_t futex_bit(int rank) { return 1u << (rank % 32); }
  std::atomic<uint64_t>& sleepers(int rank) const { return segment_.header().sleepers[rank / 64]; }

  Engine& engine_;
  Segment segment_;
  int me_;
  std::vector<int> global_ranks_;
  PeerMemory memory_;
  std::vector<ProcessFd> event_fds_;
  std::vector<std::chrono::nanoseconds> waited_;
};

class Node::Reached final : public Waiter {
 public:
  Reached(Node& node, ProgressWait wait) : node_(node), wait_(wait), cursor_(wait.peer < 0 ? 0 : wait.peer) {}

  bool ready() override;
  std::string describe() const override;
  const ProgressWait* progress_wait() const override { return &wait_; }

  bool await_ready() { return node_.engine_.until(*this).await_ready(); }
  void await_suspend(std::coroutine_handle<> handle) {
    since_ = std::chrono::steady_clock::now();
    node_.engine_.until(*this).await_suspend(handle);
  }
  void await_resume();

 private:
  Node& node_;
  ProgressWait wait_;
  int cursor_;  // the first rank not known to have come; the last one stood at is the one waited for
  int blamed_ = -1;
  std::chrono::steady_clock::time_point since_{};
};

}  // namespace trireme::ccl
