// Watches descriptors for the whole process on one thread: pidfds of the ranks on this host, control connections to the others. What it
// sees ends waits at once.
#pragma once

#include <sys/types.h>

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

#include "trireme/ccl/bootstrap/forked_child.h"

namespace trireme::ccl {

// Threads may share it. Callbacks run on its thread and must not block.
class Watcher {
 public:
  // Returns whether to go on watching.
  using Callback = std::function<bool()>;

  static Watcher& instance();
  // Calls back when `fd` is readable or has hung up. Several may watch one descriptor; it must stay open until all have left.
  uint64_t watch(int fd, Callback callback);
  // Returns when the callback is not running and never will again; from within a callback, at once.
  void unwatch(uint64_t id);

  // Joins its thread: nothing is watched any more, and watch() does nothing. Not from within a callback.
  void stop();

  Watcher() = default;
  ~Watcher() { stop(); }
  Watcher(const Watcher&) = delete;

 private:
  void start();
  void run();
  void dispatch(int fd);
  void arm(int fd, int operation);

  std::mutex mutex_;
  std::condition_variable idle_;
  bool stopped_ = false;
  std::map<int, std::map<uint64_t, Callback>> watches_;  // by descriptor
  uint64_t next_id_ = 1;
  uint64_t running_ = 0;  // the watch whose callback runs now
  ProcessFd epoll_;
  ProcessFd stop_;
  std::thread thread_;
};

// A pidfd for a process of this host, shared by all communicators; null, with `gone` set, when there is no such process, and null where there
// is none to be had: an old kernel, a sandbox, too many open files.
std::shared_ptr<ProcessFd> open_pidfd(pid_t pid, bool& gone);

}  // namespace trireme::ccl
