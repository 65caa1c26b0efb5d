// Ranks for tests: threads of this process, over each of the ways in which ranks can be connected.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "trireme/ccl/comm/communicator.h"

namespace trireme::ccl {

enum class Wiring {
  threads,      // one segment, plain pointers
  staged,       // one segment, no reading of peers' memory
  processes,    // as separate processes would be: memfd, UNIX sockets, process_vm_readv
  slots,        // the same, through slots that are written around the caches
  measured,     // the same, in turn by each way, as it is being measured
  two_hosts,    // half the ranks on each of two "hosts", TCP between them
  uneven_hosts, // one rank alone, the others together
  all_apart,    // every rank a host of its own
};

inline const char* name_of(Wiring wiring) {
  constexpr const char* kNames[] = {"threads", "staged", "processes", "slots", "measured", "two_hosts", "uneven_hosts", "all_apart"};
  return kNames[static_cast<int>(wiring)];
}

// Sets an environment variable while in scope.
class ScopedEnv {
 public:
  ScopedEnv(std::string name, const std::string& value) : name_(std::move(name)) {
    if (const char* old = getenv(name_.c_str())) old_ = std::make_unique<std::string>(old);
    setenv(name_.c_str(), value.c_str(), 1);
  }
  ~ScopedEnv() {
    if (old_) setenv(name_.c_str(), old_->c_str(), 1);
    else unsetenv(name_.c_str());
  }

 private:
  std::string name_;
  std::unique_ptr<std::string> old_;
};

// Runs `body` on `size` threads and joins them. An exception in one fails the test.
inline void on_ranks(int size, const std::function<void(int rank)>& body) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&body, rank] {
      try {
        body(rank);
      } catch (const std::exception& error) {
        ADD_FAILURE() << "rank " << rank << ": " << error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

inline std::vector<std::shared_ptr<Communicator>> make_world(int size, Wiring wiring, CommunicatorOptions options = {}) {
  ScopedEnv direct("TRIREME_DIRECT_READ", wiring == Wiring::staged ? "0" : "1");
  ScopedEnv way("TRIREME_NODE_WAY", wiring == Wiring::slots ? "around" : wiring == Wiring::processes ? "direct" : "auto");
  if (wiring == Wiring::threads || wiring == Wiring::staged) return Communicator::create_threads(size, options);
  std::vector<std::shared_ptr<Communicator>> world(static_cast<size_t>(size));
  auto store = make_memory_store();
  on_ranks(size, [&](int rank) {
    CommunicatorOptions mine = options;
    if (wiring == Wiring::two_hosts) mine.host_label = rank < (size + 1) / 2 ? "a" : "b";
    if (wiring == Wiring::uneven_hosts) mine.host_label = rank == 1 ? "alone" : "together";
    if (wiring == Wiring::all_apart) mine.host_label = std::to_string(rank);
    world[rank] = Communicator::create(size, rank, store, mine);
  });
  return world;
}

// Runs `body` on every rank of a new world.
inline void on_world(int size, Wiring wiring, const std::function<void(Communicator&)>& body, CommunicatorOptions options = {}) {
  auto world = make_world(size, wiring, options);
  on_ranks(size, [&](int rank) { body(*world[rank]); });
}

}  // namespace trireme::ccl
