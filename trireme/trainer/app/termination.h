// SIGTERM, as a pod's eviction and torchrun bring it: the program ends with 143 in bounded time, and never with 0.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

namespace trireme::trainer {

constexpr int kExitTerminated = 143;  // 128 + SIGTERM, as a shell has it

// While one exists there is something to lose: SIGTERM is noted, and whoever drives the program looks at wanted(), saves and
// ends. If that has not happened `patience` after the signal (a long step, a peer that does not answer), `last_resort` runs
// on a thread of this object, and the process ends without another word; unless it says false, which is to be patient once
// more. At all other times SIGTERM ends the process at once. One at a time.
class Termination {
 public:
  // From the first moment on: data and models may take long to read.
  static void install();
  static bool wanted();

  Termination(std::chrono::milliseconds patience, std::function<bool()> last_resort);
  ~Termination();
  Termination(const Termination&) = delete;

 private:
  void run();

  const std::chrono::milliseconds patience_;
  const std::function<bool()> last_resort_;
  std::mutex mutex_;
  std::condition_variable over_;
  bool is_over_ = false;
  std::thread thread_;
};

}  // namespace trireme::trainer
