#include "trireme/trainer/app/termination.h"

#include <semaphore.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <exception>
#include <iostream>

#include "trireme/base/error.h"

namespace trireme::trainer {
namespace {

std::atomic<bool> is_wanted{false}, something_to_lose{false};
static_assert(std::atomic<bool>::is_always_lock_free);
sem_t signalled;  // the one way to wake a thread that a signal handler may use

void handle(int) {
  is_wanted = true;
  if (!something_to_lose) ::_exit(kExitTerminated);
  ::sem_post(&signalled);
}

}  // namespace

void Termination::install() {
  TRIREME_ENFORCE(::sem_init(&signalled, 0, 0) == 0, "sem_init");
  struct sigaction action = {};
  action.sa_handler = handle;
  action.sa_flags = SA_RESTART;
  TRIREME_ENFORCE(::sigaction(SIGTERM, &action, nullptr) == 0, "sigaction");
}

bool Termination::wanted() { return is_wanted; }

Termination::Termination(std::chrono::milliseconds patience, std::function<bool()> last_resort)
    : patience_(patience), last_resort_(std::move(last_resort)), thread_([this] { run(); }) {
  something_to_lose = true;
}

Termination::~Termination() {
  something_to_lose = false;
  {
    const std::scoped_lock lock(mutex_);
    is_over_ = true;
  }
  over_.notify_all();
  ::sem_post(&signalled);
  thread_.join();
}

void Termination::run() {
  while (!is_wanted) {
    ::sem_wait(&signalled);
    const std::scoped_lock lock(mutex_);
    if (is_over_) return;
  }
  bool may_end = false;
  while (!may_end) {
    {
      std::unique_lock lock(mutex_);
      if (over_.wait_for(lock, patience_, [this] { return is_over_; })) return;
    }
    try {
      may_end = last_resort_();
    } catch (const std::exception& error) {
      std::cerr << "trireme: SIGTERM: " << error.what() << std::endl;
      may_end = true;
    }
  }
  ::_exit(kExitTerminated);
}

}  // namespace trireme::trainer
