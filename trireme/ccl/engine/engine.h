// The waits of one communicator: which coroutine waits for what, and who moves bytes meanwhile.
#pragma once

#include <poll.h>

#include <coroutine>
#include <cstdint>
#include <exception>
#include <string>
#include <vector>

namespace trireme::ccl {

// "Every rank of this host, or the one numbered `peer`, has come as far as `target`": what a sleeping rank leaves in shared memory, so
// that others wake it only when that has become true.
struct ProgressWait {
  static constexpr int kEveryone = -1;
  int peer = kEveryone;
  uint64_t target = 0;
};

// A condition that a coroutine waits for. Lives in the coroutine's frame while it waits.
class Waiter {
 public:
  virtual ~Waiter() = default;
  virtual bool ready() = 0;
  // What a report says: "rank 1 to begin".
  virtual std::string describe() const = 0;
  // The rank of another host whose message is waited for, or -1.
  virtual int awaited_rank() const { return -1; }
  // Set where shared-memory progress alone can make it ready.
  virtual const ProgressWait* progress_wait() const { return nullptr; }

 private:
  friend class Engine;
  std::coroutine_handle<> handle_;
};

// Something that moves bytes when polled: a set of links.
class Source {
 public:
  virtual ~Source() = default;
  // Moves what can be moved without blocking; true if anything moved. Throws what ends the communicator.
  virtual bool progress() = 0;
  // Whether anything is under way here at all.
  virtual bool active() const = 0;
  // False where something can happen that no descriptor of add_poll_fds announces: the driver must look again by itself. Asked
  // right before sleeping, after progress().
  virtual bool may_sleep() { return true; }
  // Adds the descriptors whose readiness would let progress() move something.
  virtual void add_poll_fds(std::vector<pollfd>& fds) const = 0;
};

// Owned by a communicator; one thread at a time. Never blocks.
class Engine {
 public:
  void add_source(Source* source) { sources_.push_back(source); }

  // Lets the sources move bytes and resumes every coroutine whose condition holds. True if anything happened.
  bool poll();

  // Ends all waits: every waiting coroutine is resumed and throws `error`; so does every later wait.
  void fail(std::exception_ptr error);
  std::exception_ptr failure() const { return failure_; }

  bool idle() const { return waiters_.empty(); }
  // Non-null when shared-memory progress of exactly this kind is all that is waited for.
  const ProgressWait* only_progress_wait() const;
  // Whether every source that has something under way may_sleep().
  bool may_sleep();
  void add_poll_fds(std::vector<pollfd>& fds) const;
  std::string describe_waits() const;
  // A rank whose message is waited for, or -1: what others of this host are told about why this one is late.
  int awaited_rank() const;

  // co_await engine.until(waiter): suspends until waiter.ready().
  auto until(Waiter& waiter) {
    struct Awaiter {
      Engine& engine;
      Waiter& waiter;
      bool await_ready() const { return engine.failure_ || waiter.ready(); }
      void await_suspend(std::coroutine_handle<> handle) {
        waiter.handle_ = handle;
        engine.waiters_.push_back(&waiter);
      }
      void await_resume() const {
        if (engine.failure_) std::rethrow_exception(engine.failure_);
      }
    };
    return Awaiter{*this, waiter};
  }

 private:
  std::vector<Waiter*> waiters_;
  std::vector<Source*> sources_;
  std::exception_ptr failure_;
};

}  // namespace trireme::ccl
