#include "trireme/ccl/comm/watcher.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/ccl/bootstrap/per_process.h"

namespace trireme::ccl {

Watcher& Watcher::instance() {
  static PerProcess<Watcher> watcher;
  return watcher.get();
}

void Watcher::stop() {
  {
    std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  if (!thread_.joinable()) return;
  uint64_t one = 1;
  [[maybe_unused]] ssize_t written = ::write(stop_.get(), &one, sizeof one);
  thread_.join();
}

void Watcher::start() {
  if (thread_.joinable()) return;
  epoll_ = ProcessFd(UniqueFd(epoll_create1(EPOLL_CLOEXEC)));
  stop_ = ProcessFd(UniqueFd(eventfd(0, EFD_CLOEXEC)));
  if (!epoll_ || !stop_) throw IoError(errno_message("watching peers", errno));
  arm(stop_.get(), EPOLL_CTL_ADD);
  thread_ = std::thread([this] { run(); });
}

// One-shot: a descriptor is armed again after its callbacks have run.
void Watcher::arm(int fd, int operation) {
  epoll_event event{};
  event.events = EPOLLIN | EPOLLRDHUP | EPOLLONESHOT;
  event.data.fd = fd;
  if (epoll_ctl(epoll_.get(), operation, fd, &event) != 0) throw IoError(errno_message("watching a peer", errno));
}

uint64_t Watcher::watch(int fd, Callback callback) {
  std::lock_guard lock(mutex_);
  if (stopped_) return 0;
  start();
  uint64_t id = next_id_++;
  auto& callbacks = watches_[fd];
  callbacks.emplace(id, std::move(callback));
  arm(fd, callbacks.size() == 1 ? EPOLL_CTL_ADD : EPOLL_CTL_MOD);
  return id;
}

void Watcher::unwatch(uint64_t id) {
  std::unique_lock lock(mutex_);
  if (std::this_thread::get_id() != thread_.get_id()) idle_.wait(lock, [&] { return running_ != id; });
  for (auto entry = watches_.begin(); entry != watches_.end(); ++entry) {
    if (entry->second.erase(id) == 0) continue;
    if (entry->second.empty()) {
      epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, entry->first, nullptr);
      watches_.erase(entry);
    }
    return;
  }
}

void Watcher::run() {
  for (;;) {
    epoll_event event{};
    int count = epoll_wait(epoll_.get(), &event, 1, -1);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 || event.data.fd == stop_.get()) return;
    dispatch(event.data.fd);
  }
}

void Watcher::dispatch(int fd) {
  std::unique_lock lock(mutex_);
  auto found = watches_.find(fd);
  if (found == watches_.end()) return;
  std::map<uint64_t, Callback> callbacks = found->second;
  bool again = false;
  for (auto& [id, callback] : callbacks) {
    found = watches_.find(fd);
    if (found == watches_.end() || found->second.count(id) == 0) continue;
    running_ = id;
    lock.unlock();
    again |= callback();
    lock.lock();
    running_ = 0;
    idle_.notify_all();
  }
  if (again && watches_.count(fd) != 0) arm(fd, EPOLL_CTL_MOD);
}

std::shared_ptr<ProcessFd> open_pidfd(pid_t pid, bool& gone) {
  static std::mutex mutex;
  static std::map<pid_t, std::weak_ptr<ProcessFd>> known;
  std::lock_guard lock(mutex);
  gone = false;
  if (auto shared = known[pid].lock(); shared && *shared) {
    // The number may have been given to another process since: a readable pidfd is a dead process.
    pollfd dead{shared->get(), POLLIN, 0};
    if (::poll(&dead, 1, 0) == 0) return shared;
  }
  UniqueFd fd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  gone = !fd && errno == ESRCH;
  if (!fd) return nullptr;
  auto shared = std::make_shared<ProcessFd>(std::move(fd));
  known[pid] = shared;
  return shared;
}

}  // namespace trireme::ccl
