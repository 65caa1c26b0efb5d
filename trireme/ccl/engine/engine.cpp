#include "trireme/ccl/engine/engine.h"

namespace trireme::ccl {

bool Engine::poll() {
  bool moved = false;
  for (Source* source : sources_) {
    if (source->active()) moved |= source->progress();
  }
  // A resumed coroutine may wait again (it is appended) or end others' waits: walk by index, take each out before resuming it.
  for (size_t i = 0; i < waiters_.size();) {
    Waiter* waiter = waiters_[i];
    if (!failure_ && !waiter->ready()) {
      ++i;
      continue;
    }
    waiters_.erase(waiters_.begin() + static_cast<long>(i));
    waiter->handle_.resume();
    moved = true;
  }
  return moved;
}

void Engine::fail(std::exception_ptr error) {
  if (!failure_) failure_ = std::move(error);
}

const ProgressWait* Engine::only_progress_wait() const {
  for (Source* source : sources_) {
    if (source->active()) return nullptr;
  }
  return waiters_.size() == 1 ? waiters_.front()->progress_wait() : nullptr;
}

bool Engine::may_sleep() {
  for (Source* source : sources_) {
    if (source->active() && !source->may_sleep()) return false;
  }
  return true;
}

void Engine::add_poll_fds(std::vector<pollfd>& fds) const {
  for (Source* source : sources_) {
    if (source->active()) source->add_poll_fds(fds);
  }
}

int Engine::awaited_rank() const {
  for (const Waiter* waiter : waiters_) {
    if (waiter->awaited_rank() >= 0) return waiter->awaited_rank();
  }
  return -1;
}

std::string Engine::describe_waits() const {
  std::string text;
  for (const Waiter* waiter : waiters_) text += (text.empty() ? "" : "; ") + waiter->describe();
  return text;
}

}  // namespace trireme::ccl
