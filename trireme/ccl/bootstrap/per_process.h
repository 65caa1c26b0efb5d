// One object per process, for what owns threads: a forked child has none of them, so it makes an object of its own and leaves its copy of the
// parent's alone. A child may then make communicators, as a program that forks its ranks does.
#pragma once

#include <atomic>

#include "trireme/ccl/bootstrap/forked_child.h"

namespace trireme::ccl {

// Meant to be static. Threads may share it. No lock: one that another thread held at the fork would stay locked in the child.
// When the program's statics go it stops the object's threads (T::stop), but the object stays: a communicator may be among the statics that go later.
template <class T>
class PerProcess {
 public:
  ~PerProcess() {
    Owned* owned = owned_.load(std::memory_order_acquire);
    if (owned && owned->generation == fork_generation()) owned->object.stop();
  }

  T& get() {
    Owned* owned = owned_.load(std::memory_order_acquire);
    if (owned && owned->generation == fork_generation()) return owned->object;
    Owned* fresh = new Owned{fork_generation(), {}};
    if (owned_.compare_exchange_strong(owned, fresh, std::memory_order_acq_rel)) return fresh->object;
    delete fresh;  // another thread was faster
    return owned->object;
  }

 private:
  struct Owned {
    unsigned generation;
    T object;
  };
  std::atomic<Owned*> owned_{nullptr};
};

}  // namespace trireme::ccl
