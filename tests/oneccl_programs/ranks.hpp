// Runs a program's body on several ranks: `program threads 3` in one process through create_communicators, `program
// processes 3` in forked processes that share a kvs address, `program hosts 4` in such processes that take themselves to be on
// two hosts in turn, `program launcher` as one rank of an mpirun. A rank that throws
// makes the program fail.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "oneapi/ccl.hpp"

// The body of a program: called once on each rank, with one communicator over all of them and the kvs it came from.
void run(ccl::communicator& comm, const ccl::shared_ptr_class<ccl::kvs>& kvs);

#define CHECK(condition)                                          \
  do {                                                            \
    if (!(condition)) {                                           \
      std::ostringstream where;                                   \
      where << __FILE__ << ":" << __LINE__ << ": " << #condition; \
      throw std::runtime_error(where.str());                      \
    }                                                             \
  } while (false)

// `statement` throws `type`, and the message contains `text`.
#define CHECK_THROWS(type, text, statement)                                                       \
  do {                                                                                            \
    bool thrown = false;                                                                          \
    try {                                                                                         \
      statement;                                                                                  \
    } catch (const type& error) {                                                                 \
      thrown = true;                                                                              \
      if (std::string(error.what()).find(text) == std::string::npos) {                            \
        throw std::runtime_error(std::string("message without '") + text + "': " + error.what()); \
      }                                                                                           \
    }                                                                                             \
    CHECK(thrown&& #statement);                                                                   \
  } while (false)

namespace ranks {

// The value that rank contributes at index: different for every rank and index, and exact in every type.
inline int value(int rank, size_t index) { return rank + 1 + static_cast<int>(index % 5); }

// What their sum over all ranks is.
inline int sum(int size, size_t index) { return size * (size + 1) / 2 + size * static_cast<int>(index % 5); }

inline bool run_reporting(ccl::communicator& comm, const ccl::shared_ptr_class<ccl::kvs>& kvs) {
  try {
    run(comm, kvs);
    return true;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rank %d: %s\n", comm.rank(), error.what());
    // The other ranks may be waiting for this one.
    std::_Exit(1);
  }
}

inline int run_threads(int size) {
  auto kvs = ccl::create_main_kvs();
  std::map<int, ccl::device> devices;
  for (int rank = 0; rank < size; ++rank) devices.emplace(rank, ccl::create_device());
  auto comms = ccl::create_communicators(size, devices, ccl::create_context(), kvs);
  CHECK(static_cast<int>(comms.size()) == size);
  std::vector<std::thread> threads;
  for (auto& comm : comms) {
    ccl::communicator* mine = &comm;
    threads.emplace_back([mine, kvs] { run_reporting(*mine, kvs); });
  }
  for (auto& thread : threads) thread.join();
  return 0;
}

inline int run_process(int size, int rank, const int* pipe_ends) {
  ccl::shared_ptr_class<ccl::kvs> kvs;
  ccl::kvs::address_type address;
  const ssize_t bytes = static_cast<ssize_t>(address.size());
  if (rank == 0) {
    kvs = ccl::create_main_kvs();
    address = kvs->get_address();
    for (int other = 1; other < size; ++other) CHECK(write(pipe_ends[1], address.data(), address.size()) == bytes);
  } else {
    CHECK(read(pipe_ends[0], address.data(), address.size()) == bytes);
    kvs = ccl::create_kvs(address);
  }
  auto comm = ccl::create_communicator(size, rank, kvs);
  const bool passed = run_reporting(comm, kvs);
  // The kvs server lives in rank 0: it goes last.
  ccl::barrier(comm);
  return passed ? 0 : 1;
}

inline int run_processes(int size, bool hosts) {
  int pipe_ends[2];
  CHECK(pipe(pipe_ends) == 0);
  for (int rank = 0; rank < size; ++rank) {
    if (fork() == 0) {
      if (hosts) setenv("TRIREME_HOST", rank % 2 == 0 ? "even" : "odd", 1);
      int status = 1;
      try {
        status = run_process(size, rank, pipe_ends);
      } catch (const std::exception& error) {
        std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
      }
      std::fflush(nullptr);
      _exit(status);
    }
  }
  int failed = 0, status = 0;
  while (wait(&status) > 0) failed += status != 0;
  return failed == 0 ? 0 : 1;
}

inline int run_launched() {
  auto comm = ccl::preview::create_communicator();
  // Each has a kvs of its own then: bodies that share one take the address through the communicator.
  ccl::shared_ptr_class<ccl::kvs> kvs;
  ccl::kvs::address_type address;
  if (comm.rank() == 0) {
    kvs = ccl::create_main_kvs();
    address = kvs->get_address();
  }
  ccl::broadcast(reinterpret_cast<int8_t*>(address.data()), address.size(), 0, comm).wait();
  if (comm.rank() != 0) kvs = ccl::create_kvs(address);
  const bool passed = run_reporting(comm, kvs);
  ccl::barrier(comm);
  return passed ? 0 : 1;
}

}  // namespace ranks

int main(int argc, char** argv) {
  const std::string how = argc > 1 ? argv[1] : "";
  const int size = argc > 2 ? std::atoi(argv[2]) : 0;
  try {
    ccl::init();
    if (how == "threads" && size > 0) return ranks::run_threads(size);
    if ((how == "processes" || how == "hosts") && size > 0) return ranks::run_processes(size, how == "hosts");
    if (how == "launcher") return ranks::run_launched();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  std::fprintf(stderr, "usage: %s threads N | processes N | hosts N | launcher\n", argv[0]);
  return 2;
}
