#include "trireme/ccl/bootstrap/forked_child.h"

#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <vector>

namespace trireme::ccl {

namespace {

struct Registry {
  Registry() { pthread_atfork(before_fork, in_parent, in_child); }

  // The lock is held across fork(): no thread is in the middle of a change when the child gets its copy.
  static void before_fork();
  static void in_parent();
  static void in_child();

  std::mutex mutex;
  std::vector<int> fds;
  struct Foreign {
    int fd;
    dev_t device;
    ino_t inode;
  };
  std::vector<Foreign> foreign;
};

// A socket's inode is its own as long as it exists.
bool is_socket(int fd, struct stat& status) { return ::fstat(fd, &status) == 0 && S_ISSOCK(status.st_mode); }

// Asked for in every operation, so not behind registry().
constinit std::atomic<unsigned> generation{0};

// Never destroyed: a thread may fork while static objects go.
Registry& registry() {
  static Registry* instance = new Registry;
  return *instance;
}

// Made while the library is loaded. Made on first use it could be half made in one thread while another forks, and the child
// would wait for ever for that first thread.
[[maybe_unused]] const Registry& made_at_load = registry();

void Registry::before_fork() { registry().mutex.lock(); }
void Registry::in_parent() { registry().mutex.unlock(); }

// Only what is safe between fork() and exec() of a process with threads: close(), fstat() and plain memory, no allocation.
void Registry::in_child() {
  Registry& self = registry();
  for (int fd : self.fds) ::close(fd);
  for (const Foreign& socket : self.foreign) {
    struct stat now {};
    if (is_socket(socket.fd, now) && now.st_dev == socket.device && now.st_ino == socket.inode) ::close(socket.fd);
  }
  self.fds.clear();
  self.foreign.clear();
  generation.fetch_add(1, std::memory_order_relaxed);
  self.mutex.unlock();
}

void remove(std::vector<int>& fds, int fd) {
  auto at = std::find(fds.begin(), fds.end(), fd);
  if (at == fds.end()) return;
  *at = fds.back();
  fds.pop_back();
}

}  // namespace

unsigned fork_generation() { return generation.load(std::memory_order_relaxed); }

void register_fd(int fd) {
  Registry& self = registry();
  std::lock_guard lock(self.mutex);
  self.fds.push_back(fd);
}

void register_foreign_socket(int fd) {
  struct stat status {};
  if (!is_socket(fd, status)) return;
  Registry& self = registry();
  std::lock_guard lock(self.mutex);
  self.foreign.push_back({fd, status.st_dev, status.st_ino});
}

void unregister_fd(int fd) {
  Registry& self = registry();
  std::lock_guard lock(self.mutex);
  remove(self.fds, fd);
}

void close_registered_fd(int fd) {
  Registry& self = registry();
  std::lock_guard lock(self.mutex);
  remove(self.fds, fd);
  ::close(fd);
}

}  // namespace trireme::ccl
