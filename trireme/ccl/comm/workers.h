// CCL_WORKER_COUNT threads that carry out operations nobody waits for. One set per process, started at the first call.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace trireme::ccl {

class CommunicatorState;

// Threads may share it.
class Workers {
 public:
  static Workers& instance();
  // There is work on this communicator and nobody at it.
  void call(std::shared_ptr<CommunicatorState> communicator);

 private:
  struct Worker {
    std::mutex mutex;
    std::condition_variable called;
    std::deque<std::shared_ptr<CommunicatorState>> queue;
    std::atomic<bool> new_work{false};
    std::weak_ptr<CommunicatorState> driving;  // under mutex: whose operations it carries out now
    bool stop = false;
    std::thread thread;
  };
  Workers() = default;
  ~Workers();
  void start();
  void run(Worker& worker, int cpu);
  void serve(Worker& worker, std::vector<std::shared_ptr<CommunicatorState>>& clients);

  std::mutex mutex_;
  std::vector<std::unique_ptr<Worker>> workers_;
  unsigned generation_ = 0;
};

}  // namespace trireme::ccl
