#include "trireme/ccl/comm/workers.h"

#include <algorithm>
#include <chrono>
#include <optional>

#include "trireme/base/env.h"
#include "trireme/base/error.h"
#include "trireme/ccl/bootstrap/per_process.h"
#include "trireme/ccl/bootstrap/pmi.h"
#include "trireme/ccl/comm/state.h"
#include "trireme/cpu/affinity.h"
#include "trireme/cpu/pinning.h"

namespace trireme::ccl {
namespace {

using Clock = std::chrono::steady_clock;

// A worker looks after a communicator for this long after its last work, at this interval. It takes over what nobody has driven
// between two looks: a caller that is merely off its core for a moment must not be overtaken.
constexpr auto kLinger = std::chrono::milliseconds(100);
constexpr auto kLookIn = std::chrono::microseconds(500);
// Several clients that all wait for peers have no one thing to sleep on.
constexpr auto kNap = std::chrono::microseconds(50);

struct LocalPlace {
  size_t rank = 0, size = 1;
};

thread_local bool is_worker = false;

// Which of the host's ranks this process is, as far as the launcher tells.
LocalPlace local_place() {
  if (env::is_set("CCL_PROCESS_LAUNCHER") && env::text("CCL_PROCESS_LAUNCHER") == "none") {
    const long long rank = env::integer("CCL_LOCAL_RANK"), size = env::integer("CCL_LOCAL_SIZE");
    if (rank >= size) {
      throw InvalidArgument(str("CCL_LOCAL_RANK=", rank, " and CCL_LOCAL_SIZE=", size, " do not fit together: ranks go from 0 to size - 1"));
    }
    return {static_cast<size_t>(rank), static_cast<size_t>(size)};
  }
  auto launched = launcher_rank();
  if (!launched) return {};
  return {static_cast<size_t>(launched->local_rank), static_cast<size_t>(launched->local_size)};
}

// Where the process's threads were planned, the workers were too.
size_t worker_count(const std::optional<cpu::Plan>& plan) {
  return static_cast<size_t>(plan && plan->workers > 0 ? plan->workers : env::integer("CCL_WORKER_COUNT"));
}

// One CPU per worker, or none where they are not pinned. A list names one for each worker of each rank of the host, in rank order, or one
// for each worker of every rank. By itself, without a plan, a worker is pinned to one of the last CPUs, and only where that leaves every
// rank of the host one to compute on.
std::vector<int> worker_cpus(size_t count, const std::optional<cpu::Plan>& plan) {
  if (plan && plan->compute_threads > 0) return plan->worker_cpus;
  std::vector<int> list = cpu::parse_cpu_list(env::text("CCL_WORKER_AFFINITY"));
  LocalPlace place = local_place();
  if (list.empty()) {
    std::vector<int> allowed = cpu::allowed_cpus();
    if (allowed.size() < place.size * (count + 1)) return {};
    list.assign(allowed.rbegin(), allowed.rbegin() + static_cast<long>(place.size * count));
  }
  if (list.size() == count) return list;
  if (list.size() < count * place.size) {
    throw InvalidArgument(str("CCL_WORKER_AFFINITY=", env::text("CCL_WORKER_AFFINITY"), " names ", list.size(), " CPUs for CCL_WORKER_COUNT=",
                              count, " and ", place.size, " ranks on this host: expected ", count, ", for each rank the same, or ",
                              count * place.size, ", one per worker"));
  }
  auto first = list.begin() + static_cast<long>(place.rank * count);
  return {first, first + static_cast<long>(count)};
}

}  // namespace

Workers& Workers::instance() {
  static PerProcess<Workers> workers;
  return workers.get();
}

bool Workers::is_this_thread() { return is_worker; }

void Workers::check_settings() {
  if (!env::flag("CCL_WORKER_OFFLOAD")) return;
  std::optional<cpu::Plan> plan = cpu::applied_plan();
  worker_cpus(worker_count(plan), plan);
}

void Workers::stop() {
  {
    std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  for (auto& worker : workers_) {
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
  std::optional<cpu::Plan> plan = cpu::applied_plan();
  size_t count = worker_count(plan);
  std::vector<int> cpus = worker_cpus(count, plan);
  for (size_t i = 0; i < count; ++i) {
    workers_.push_back(std::make_unique<Worker>());
    Worker& worker = *workers_.back();
    int cpu = cpus.empty() ? -1 : cpus[i];
    worker.thread = std::thread([this, &worker, cpu] { run(worker, cpu); });
  }
}

void Workers::enlist(std::shared_ptr<CommunicatorState> communicator, bool urgent) {
  Worker* worker;
  {
    std::lock_guard lock(mutex_);
    if (stopped_) return;
    if (workers_.empty()) start();
    // A communicator stays with its worker; they take communicators in turn, so that as few as possible share one.
    worker = workers_[communicator->creation_number() % workers_.size()].get();
  }
  std::lock_guard lock(worker->mutex);
  communicator->looked_after.store(true, std::memory_order_release);
  worker->queue.push_back({std::move(communicator), urgent, 0});
  worker->new_work.store(true, std::memory_order_release);
  if (auto busy = worker->driving.lock()) busy->interrupt();
  worker->called.notify_one();
}

void Workers::run(Worker& worker, int cpu) {
  is_worker = true;
  if (cpu >= 0) cpu::pin_this_thread(cpu);
  auto last_work = Clock::now();
  while (wait_for_calls(worker)) {
    if (serve(worker)) last_work = Clock::now();
    std::erase_if(worker.clients, [](const Client& client) { return client.communicator->closed(); });
    if (Clock::now() - last_work < kLinger) continue;
    // Whoever submitted just before still thought itself looked after: these stay. Either that is seen here, or the submitter sees the flag lowered.
    for (Client& client : worker.clients) client.communicator->looked_after.store(false, std::memory_order_seq_cst);
    std::erase_if(worker.clients, [](const Client& client) { return !client.communicator->has_work(); });
    for (Client& client : worker.clients) client.communicator->looked_after.store(true, std::memory_order_release);
  }
}

// Until somebody calls or, with clients, until the next look is due. False: the end.
bool Workers::wait_for_calls(Worker& worker) {
  std::unique_lock lock(worker.mutex);
  auto called = [&] { return worker.stop || !worker.queue.empty(); };
  if (worker.clients.empty()) worker.called.wait(lock, called);
  else worker.called.wait_for(lock, kLookIn, called);
  for (Client& arrived : worker.queue) {
    auto known = std::find_if(worker.clients.begin(), worker.clients.end(),
                              [&](const Client& client) { return client.communicator == arrived.communicator; });
    arrived.turns_seen = arrived.communicator->turns();
    if (known == worker.clients.end()) worker.clients.push_back(std::move(arrived));
    else known->urgent = known->urgent || arrived.urgent;
  }
  worker.queue.clear();
  worker.new_work.store(false, std::memory_order_release);
  return !worker.stop;
}

// Drives every client that has work and that no caller drives, until none is left or new work comes. True if there was anything to do.
bool Workers::serve(Worker& worker) {
  bool worked = false;
  while (!worker.new_work.load(std::memory_order_acquire)) {
    bool driven = false, moved = false;
    auto busy = std::count_if(worker.clients.begin(), worker.clients.end(), [](const Client& c) { return c.communicator->has_work(); });
    for (Client& client : worker.clients) {
      CommunicatorState& communicator = *client.communicator;
      bool untouched = client.turns_seen == communicator.turns();
      client.turns_seen = communicator.turns();
      if (!communicator.has_work()) client.urgent = false;
      if (!communicator.has_work() || !(client.urgent || untouched) || !communicator.try_drive()) continue;
      driven = true;
      client.urgent = true;  // its caller does not wait: see it to its end
      moved |= drive(worker, communicator, busy == 1);
      client.turns_seen = communicator.turns();
    }
    worked |= driven || busy != 0;
    if (!driven) break;
    if (!moved) {
      std::unique_lock lock(worker.mutex);
      worker.called.wait_for(lock, kNap, [&] { return worker.stop || !worker.queue.empty(); });
    }
  }
  return worked;
}

// The worker has the turn. Alone, a communicator is driven to its end; among several each gets a little.
bool Workers::drive(Worker& worker, CommunicatorState& communicator, bool alone) {
  const CommunicatorState::Turn turn(communicator);
  bool moved = true;
  communicator.worker_took_over();
  if (alone) {
    {
      std::lock_guard lock(worker.mutex);
      worker.driving = communicator.weak_from_this();
    }
    auto stop = [&] { return !communicator.has_work() || communicator.closed() || worker.new_work.load(std::memory_order_acquire); };
    communicator.drive(stop, CommunicatorState::Patience::worker);
    std::lock_guard lock(worker.mutex);
    worker.driving.reset();
  } else {
    moved = communicator.drive_briefly();
  }
  return moved;
}

}  // namespace trireme::ccl
