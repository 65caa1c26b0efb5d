#include "trireme/ccl/comm/workers.h"

#include <algorithm>
#include <chrono>

#include "trireme/base/env.h"
#include "trireme/ccl/bootstrap/forked_child.h"
#include "trireme/ccl/bootstrap/pmi.h"
#include "trireme/ccl/comm/state.h"
#include "trireme/cpu/affinity.h"

namespace trireme::ccl {
namespace {

using Clock = std::chrono::steady_clock;

// A worker looks after a communicator for this long after its last work, at this interval, so that callers who wait at once
// need not wake it for every operation.
constexpr auto kLinger = std::chrono::milliseconds(20);
constexpr auto kLookIn = std::chrono::microseconds(500);
constexpr auto kNap = std::chrono::microseconds(50);

struct LocalPlace {
  size_t rank = 0, size = 1;
};

// Which of the host's ranks this process is, as far as the launcher tells.
LocalPlace local_place() {
  if (env::is_set("CCL_PROCESS_LAUNCHER") && env::text("CCL_PROCESS_LAUNCHER") == "none") {
    return {static_cast<size_t>(env::integer("CCL_LOCAL_RANK")), static_cast<size_t>(env::integer("CCL_LOCAL_SIZE"))};
  }
  auto launched = launcher_rank();
  if (!launched) return {};
  return {static_cast<size_t>(launched->local_rank), static_cast<size_t>(launched->local_size)};
}

// One CPU per worker, or none where they are not pinned. A list names the workers of all local ranks, or of each when it is short. By
// itself a worker is pinned to one of the last CPUs, and only where that leaves every rank of the host one to compute on.
std::vector<int> worker_cpus(size_t count) {
  std::vector<int> list = cpu::parse_cpu_list(env::text("CCL_WORKER_AFFINITY"));
  LocalPlace place = local_place();
  std::vector<int> chosen;
  if (list.empty()) {
    std::vector<int> allowed = cpu::allowed_cpus();
    if (allowed.size() < place.size * (count + 1)) return {};
    list.assign(allowed.rbegin(), allowed.rbegin() + static_cast<long>(place.size * count));
  }
  for (size_t i = 0; i < count; ++i) chosen.push_back(list[(place.rank * count + i) % list.size()]);
  return chosen;
}

}  // namespace

Workers& Workers::instance() {
  static Workers workers;
  return workers;
}

Workers::~Workers() {
  for (auto& worker : workers_) {
    if (generation_ != fork_generation()) {
      worker->thread.detach();  // a forked child has no such thread
      worker.release();
      continue;
    }
    {
      std::lock_guard lock(worker->mutex);
      worker->stop = true;
      worker->new_work = true;
      if (auto communicator = worker->driving.lock()) communicator->interrupt();
    }
    worker->called.notify_one();
    worker->thread.join();
  }
}

void Workers::start() {
  generation_ = fork_generation();
  auto count = static_cast<size_t>(env::integer("CCL_WORKER_COUNT"));
  std::vector<int> cpus = worker_cpus(count);
  for (size_t i = 0; i < count; ++i) {
    workers_.push_back(std::make_unique<Worker>());
    Worker& worker = *workers_.back();
    int cpu = cpus.empty() ? -1 : cpus[i];
    worker.thread = std::thread([this, &worker, cpu] { run(worker, cpu); });
  }
}

void Workers::call(std::shared_ptr<CommunicatorState> communicator) {
  Worker* worker;
  {
    std::lock_guard lock(mutex_);
    if (workers_.empty()) start();
    // A communicator stays with its worker.
    worker = workers_[std::hash<void*>()(communicator.get()) / 64 % workers_.size()].get();
  }
  std::lock_guard lock(worker->mutex);
  if (std::find(worker->queue.begin(), worker->queue.end(), communicator) == worker->queue.end()) {
    worker->queue.push_back(std::move(communicator));
  }
  worker->new_work.store(true, std::memory_order_release);
  if (auto busy = worker->driving.lock()) busy->interrupt();
  worker->called.notify_one();
}

void Workers::run(Worker& worker, int cpu) {
  if (cpu >= 0) cpu::pin_this_thread(cpu);
  std::vector<std::shared_ptr<CommunicatorState>> clients;
  auto last_work = Clock::now();
  for (;;) {
    {
      std::unique_lock lock(worker.mutex);
      auto called = [&] { return worker.stop || !worker.queue.empty(); };
      if (clients.empty()) worker.called.wait(lock, called);
      else worker.called.wait_for(lock, kLookIn, called);
      if (worker.stop) return;
      for (auto& communicator : worker.queue) {
        if (std::find(clients.begin(), clients.end(), communicator) == clients.end()) clients.push_back(communicator);
        communicator->lingering.store(true, std::memory_order_release);
        last_work = Clock::now();
      }
      worker.queue.clear();
      worker.new_work.store(false, std::memory_order_release);
    }
    serve(worker, clients);
    std::erase_if(clients, [](const auto& client) { return client->closed(); });
    bool busy = std::any_of(clients.begin(), clients.end(), [](const auto& client) { return client->has_work(); });
    if (busy) last_work = Clock::now();
    if (busy || Clock::now() - last_work < kLinger) continue;
    for (auto& client : clients) client->lingering.store(false, std::memory_order_release);
    // Whoever submitted just before saw a lingering worker: look once more.
    serve(worker, clients);
    clients.clear();
  }
}

// Drives each client that has work and that no caller drives. With several at once each gets a turn; alone, it is driven to its end.
void Workers::serve(Worker& worker, std::vector<std::shared_ptr<CommunicatorState>>& clients) {
  auto busy = [&] { return std::count_if(clients.begin(), clients.end(), [](const auto& client) { return client->has_work(); }); };
  while (!worker.new_work.load(std::memory_order_acquire)) {
    bool driven = false, moved = false;
    bool alone = busy() == 1;
    for (auto& client : clients) {
      if (!client->has_work() || !client->try_drive()) continue;
      driven = true;
      client->worker_took_over();
      if (alone) {
        {
          std::lock_guard lock(worker.mutex);
          worker.driving = client;
        }
        client->drive([&] { return !client->has_work() || worker.new_work.load(std::memory_order_acquire); },
                      CommunicatorState::Patience::worker);
        std::lock_guard lock(worker.mutex);
        worker.driving.reset();
        moved = true;
      } else {
        moved |= client->drive_briefly();
      }
      client->stop_driving();
    }
    if (!driven) return;
    if (!moved) {
      // Each of several waits for peers of its own, and there is no one thing to sleep on.
      std::unique_lock lock(worker.mutex);
      worker.called.wait_for(lock, kNap, [&] { return worker.stop || !worker.queue.empty(); });
    }
  }
}

}  // namespace trireme::ccl
