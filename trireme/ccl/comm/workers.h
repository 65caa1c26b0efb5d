// CCL_WORKER_COUNT threads that carry out operations nobody waits for. One set per process, started at the first call.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
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
  // Joins the threads. Nobody comes when called later: whoever waits does the work itself.
  void stop();
  Workers() = default;
  ~Workers() { stop(); }
  Workers(const Workers&) = delete;
  // Whether the calling thread is one of them: it has the operations of others to carry out, and must not wait for the program.
  static bool is_this_thread();
  // Throws InvalidArgument when CCL_WORKER_AFFINITY does not fit CCL_WORKER_COUNT and the ranks of the host, or the place among these is
  // none.
  static void check_settings();
  // There is work on this communicator and nobody at it: go at once.
  void call(std::shared_ptr<CommunicatorState> communicator) { enlist(std::move(communicator), true); }
  // Its caller will most likely wait, and do the work itself: look in from time to time, in case it does not.
  void look_after(std::shared_ptr<CommunicatorState> communicator) { enlist(std::move(communicator), false); }

 private:
  // A communicator that a worker looks after.
  struct Client {
    std::shared_ptr<CommunicatorState> communicator;
    bool urgent = false;
    uint64_t turns_seen = 0;  // how often somebody had taken the turn at the last look
  };
  struct Worker {
    std::mutex mutex;
    std::condition_variable called;
    std::vector<Client> queue;
    std::atomic<bool> new_work{false};
    std::weak_ptr<CommunicatorState> driving;  // under mutex: whose operations it carries out now
    bool stop = false;
    std::thread thread;
    std::vector<Client> clients;  // the thread's own
  };
  void start();
  void enlist(std::shared_ptr<CommunicatorState> communicator, bool urgent);
  void run(Worker& worker, int cpu);
  bool wait_for_calls(Worker& worker);
  bool serve(Worker& worker);
  bool drive(Worker& worker, CommunicatorState& communicator, bool alone);

  std::mutex mutex_;
  bool stopped_ = false;
  std::vector<std::unique_ptr<Worker>> workers_;
};

}  // namespace trireme::ccl
