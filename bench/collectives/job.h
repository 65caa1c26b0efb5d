// What a process starts before the library it measures, and ends after it.
#pragma once

namespace trireme::bench {

// One per process, alive as long as a communicator is.
class Job {
 public:
  Job();
  ~Job();
  Job(const Job&) = delete;
};

}  // namespace trireme::bench
