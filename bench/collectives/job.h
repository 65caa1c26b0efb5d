// What a process starts before the library it measures, and ends after it.
#pragma once

#include <cstddef>
#include <memory>

#include "scoreboard.h"

namespace trireme::bench {

// One per process, alive as long as a communicator is.
class Job {
 public:
  Job();
  ~Job();
  Job(const Job&) = delete;
};

// gather is no call of oneCCL's interface: what a library has beside it.
class Gatherer {
 public:
  virtual ~Gatherer() = default;
  // `bytes` of every rank, end to end in rank order, on kRoot. Blocks until the buffers are this rank's again.
  virtual void gather(const void* send, void* recv, size_t bytes) = 0;
};
// Null where there is nothing. Called on every rank.
std::unique_ptr<Gatherer> make_gatherer(Scoreboard& board);

}  // namespace trireme::bench
