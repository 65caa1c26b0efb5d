#include "trireme/ccl/comm/debug_signal.h"

#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <mutex>
#include <vector>

#include "trireme/base/env.h"
#include "trireme/base/error.h"
#include "trireme/base/log.h"
#include "trireme/ccl/comm/state.h"
#include "trireme/ccl/comm/watcher.h"

namespace trireme::ccl {
namespace {

int signal_number(const std::string& name) {
  if (name == "none") return 0;
  if (name == "USR1") return SIGUSR1;
  if (name == "USR2") return SIGUSR2;
  throw InvalidArgument(str("TRIREME_DEBUG_SIGNAL=", name, ": expected USR1, USR2 or none"));
}

struct Registry {
  std::mutex mutex;
  std::vector<std::weak_ptr<CommunicatorState>> communicators;
  ProcessFd event;

  void print() {
    std::lock_guard lock(mutex);
    for (auto& weak : communicators) {
      if (auto communicator = weak.lock()) log(LogLevel::error, "on request: " + communicator->report());
    }
  }
};

Registry& registry() {
  static Registry& instance = *new Registry;  // the watcher's thread may outlive static destruction
  return instance;
}

// The handler itself may only write; the watcher's thread does the rest. In a forked child, which inherits the handler, there is no event.
void on_signal(int) {
  const int fd = registry().event.get();
  if (fd < 0) return;
  int saved = errno;
  uint64_t one = 1;
  [[maybe_unused]] ssize_t written = ::write(fd, &one, sizeof one);
  errno = saved;
}

void install(Registry& known) {
  int number = signal_number(env::text("TRIREME_DEBUG_SIGNAL"));
  struct sigaction current {};
  if (number == 0 || sigaction(number, nullptr, &current) != 0 || current.sa_handler != SIG_DFL) return;
  known.event = ProcessFd(UniqueFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)));
  if (!known.event) return;
  Watcher::instance().watch(known.event.get(), [&known] {
    uint64_t count;
    [[maybe_unused]] ssize_t got = ::read(known.event.get(), &count, sizeof count);
    known.print();
    return true;
  });
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  sigaction(number, &action, nullptr);
}

}  // namespace

void report_on_signal(const std::shared_ptr<CommunicatorState>& communicator) {
  Registry& known = registry();
  static std::once_flag once;
  std::call_once(once, [&] { install(known); });
  std::lock_guard lock(known.mutex);
  std::erase_if(known.communicators, [](const auto& weak) { return weak.expired(); });
  known.communicators.push_back(communicator);
}

}  // namespace trireme::ccl
