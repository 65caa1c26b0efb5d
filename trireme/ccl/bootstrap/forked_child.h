// Descriptors that belong to this process alone. A forked child (a DataLoader worker) must not keep a rank's connections
// open: its peers would not see that the rank has died. The child closes them inside fork(), before it runs a line of its
// own; exec closes them through CLOEXEC.
#pragma once

#include "trireme/base/fd.h"

namespace trireme::ccl {

// Changes in a forked child: what was registered under another generation belongs to the parent.
unsigned fork_generation();

// Any thread may call these. The descriptor stays the caller's; only a child's copy is closed.
void register_fd(int fd);
void unregister_fd(int fd);
// Closes a registered descriptor with no moment at which a fork could copy it unregistered.
void close_registered_fd(int fd);

// One that somebody else closes, unannounced: a child closes the number only as long as it is that socket. Nothing happens where it is none.
void register_foreign_socket(int fd);

// Owns a registered descriptor. In a forked child it is empty: get() is -1 and nothing is closed twice, whatever the number
// has been reused for since.
class ProcessFd {
 public:
  ProcessFd() = default;
  explicit ProcessFd(UniqueFd fd) : fd_(fd.release()), generation_(fork_generation()) {
    if (fd_ >= 0) register_fd(fd_);
  }
  ProcessFd(ProcessFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)), generation_(other.generation_) {}
  ProcessFd& operator=(ProcessFd&& other) noexcept {
    if (this != &other) {
      reset();
      fd_ = std::exchange(other.fd_, -1);
      generation_ = other.generation_;
    }
    return *this;
  }
  ~ProcessFd() { reset(); }

  int get() const { return generation_ == fork_generation() ? fd_ : -1; }
  explicit operator bool() const { return get() >= 0; }
  void reset() {
    if (int fd = get(); fd >= 0) close_registered_fd(fd);
    fd_ = -1;
  }
  // No longer registered: for handing it on.
  UniqueFd release() {
    int fd = get();
    if (fd >= 0) unregister_fd(fd);
    fd_ = -1;
    return UniqueFd(fd);
  }

 private:
  int fd_ = -1;
  unsigned generation_ = 0;
};

}  // namespace trireme::ccl
