// Coroutines for operations. An algorithm reads as straight-line code; wherever it must wait for a peer it co_awaits, and the thread that
// drives the communicator goes on with something else. Nothing here knows about threads: one thread at a time resumes a communicator's tasks.
#pragma once

#include <coroutine>
#include <exception>
#include <utility>

namespace trireme::ccl {

// With g++ 12 do not co_await a conditional expression (`co_await (a ? f() : g())`): its temporaries are destroyed twice.

// A lazily started coroutine without a result. co_await runs it to its end; what it throws comes out of the co_await.
class [[nodiscard]] Task {
 public:
  struct promise_type;
  using Handle = std::coroutine_handle<promise_type>;

  struct FinalAwaiter {
    bool await_ready() noexcept { return false; }
    std::coroutine_handle<> await_suspend(Handle finished) noexcept;
    void await_resume() noexcept {}
  };

  struct promise_type {
    std::coroutine_handle<> continuation = std::noop_coroutine();
    std::exception_ptr error;

    Task get_return_object() { return Task(Handle::from_promise(*this)); }
    std::suspend_always initial_suspend() noexcept { return {}; }
    FinalAwaiter final_suspend() noexcept { return {}; }
    void return_void() {}
    void unhandled_exception() { error = std::current_exception(); }
  };

  Task() = default;
  explicit Task(Handle handle) : handle_(handle) {}
  Task(Task&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Task& operator=(Task&& other) noexcept {
    if (this != &other) {
      destroy();
      handle_ = std::exchange(other.handle_, nullptr);
    }
    return *this;
  }
  ~Task() { destroy(); }

  // Runs until the first wait, or to the end.
  void start() { handle_.resume(); }
  bool done() const { return !handle_ || handle_.done(); }
  std::exception_ptr error() const { return handle_ ? handle_.promise().error : nullptr; }

  bool await_ready() const { return done(); }
  std::coroutine_handle<> await_suspend(std::coroutine_handle<> caller) {
    handle_.promise().continuation = caller;
    return handle_;
  }
  void await_resume() const {
    if (error()) std::rethrow_exception(error());
  }

 private:
  void destroy() {
    if (handle_) handle_.destroy();
  }
  Handle handle_;
};

inline std::coroutine_handle<> Task::FinalAwaiter::await_suspend(Handle finished) noexcept {
  return finished.promise().continuation;
}

}  // namespace trireme::ccl
