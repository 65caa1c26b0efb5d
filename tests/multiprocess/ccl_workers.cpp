// One rank that shows what its workers do. It starts an allreduce with a reduction of its own on each of four communicators and waits for
// none. Inside the reductions, workers wait for each other until CCL_WORKER_COUNT of them are there at the same time. Prints "ready",
// "together: N" (how many ever were), and for each communicator "communicator I: thread T on CPUS".
#include <sched.h>

#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <mutex>

#include "tests/multiprocess/meet.h"
#include "trireme/base/env.h"
#include "trireme/base/error.h"
#include "trireme/ccl/comm/communicator.h"

namespace trireme::ccl {
namespace {

constexpr int kCommunicators = 4;

std::string cpus_of_this_thread() {
  cpu_set_t set;
  CPU_ZERO(&set);
  sched_getaffinity(0, sizeof set, &set);
  std::string text;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) text += str(text.empty() ? "" : ",", cpu);
  }
  return text;
}

// Where the workers meet. Threads share it.
class Gate {
 public:
  explicit Gate(size_t expected) : expected_(expected) {}

  void pass(int communicator) {
    std::unique_lock lock(mutex_);
    if (!seen_[communicator].empty()) return;  // a reduction is called once per tile
    size_t thread = std::find(threads_.begin(), threads_.end(), std::this_thread::get_id()) - threads_.begin();
    if (thread == threads_.size()) threads_.push_back(std::this_thread::get_id());
    seen_[communicator] = str("thread ", thread, " on ", cpus_of_this_thread());
    most_ = std::max(most_, ++inside_);
    changed_.notify_all();
    changed_.wait_for(lock, std::chrono::seconds(20), [&] { return most_ >= expected_; });
    --inside_;
  }
  void print() {
    std::lock_guard lock(mutex_);
    std::printf("together: %zu\n", most_);
    for (int i = 0; i < kCommunicators; ++i) std::printf("communicator %d: %s\n", i, seen_[i].c_str());
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  size_t expected_, inside_ = 0, most_ = 0;
  std::vector<std::thread::id> threads_;
  std::string seen_[kCommunicators];
};

int run() {
  Place place = place_from_environment();
  auto store = meet(place);
  Gate gate(static_cast<size_t>(env::integer("CCL_WORKER_COUNT")));
  std::vector<std::shared_ptr<Communicator>> comms;
  std::vector<std::vector<float>> data(kCommunicators, std::vector<float>(100000, 1.0f));
  std::vector<Request> requests;
  for (int i = 0; i < kCommunicators; ++i) {
    CommunicatorOptions options;
    options.name = str("workers-", i);
    options.timeout = std::chrono::seconds(60);
    comms.push_back(Communicator::create(place.size, place.rank, store, options));
  }
  std::printf("ready\n");
  std::fflush(stdout);
  for (int i = 0; i < kCommunicators; ++i) {
    Operation op;
    op.kind = OpKind::allreduce;
    op.type = DataType::float32;
    op.reduction = Reduction::custom;
    op.custom = [&gate, i](const void* from, void* into, size_t count, DataType) {
      gate.pass(i);
      for (size_t e = 0; e < count; ++e) static_cast<float*>(into)[e] += static_cast<const float*>(from)[e];
    };
    op.count = data[i].size();
    op.send_buffer = op.recv_buffer = data[i].data();
    requests.push_back(comms[i]->submit(op));
  }
  for (Request& request : requests) {
    while (!request.finished()) std::this_thread::sleep_for(std::chrono::milliseconds(1));  // not wait(): that would do the work itself
    request.wait();
  }
  for (const auto& sums : data) {
    if (std::count(sums.begin(), sums.end(), static_cast<float>(place.size)) != 100000) throw InternalError("wrong result");
  }
  gate.print();
  return 0;
}

}  // namespace
}  // namespace trireme::ccl

int main() { return trireme::ccl::run_and_report(trireme::ccl::run); }
