// The measurement that every library goes through: the same cases, check and clock. A library is an adapter of a few lines.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "cases.h"
#include "scoreboard.h"

namespace trireme::bench {

// One rank's part of a case. In place, `send` and `recv` point into the same buffer.
struct Call {
  const Case& c;
  const Layout& layout;
  void* send;
  void* recv;
};

class Library {
 public:
  virtual ~Library() = default;

  virtual std::string version() const = 0;
  virtual bool supports(const Case& c) const = 0;
  // The next three block until the buffers are this rank's again.
  virtual void run(const Call& call) = 0;
  virtual void send(void* data, size_t count, Type type, int peer) = 0;
  virtual void recv(void* data, size_t count, Type type, int peer) = 0;

  virtual void* allocate(size_t bytes);
  virtual void release(void* data);
};

struct Options {
  std::vector<Op> ops;
  std::vector<Type> types{Type::fp32};
  std::vector<bool> in_place{false};
  std::vector<size_t> bytes;
  // Time for the timed iterations of one case, and how many calls one iteration makes without a barrier between them.
  double budget_ms = 200;
  int calls = 1;
  bool shared_buffers = false;
};

using MakeLibrary = std::function<std::unique_ptr<Library>(Scoreboard&, const Options&)>;

// The whole program of one rank: rank and size from an mpirun's PMI, or from RANK and WORLD_SIZE, the scoreboard's path
// from BENCH_SCOREBOARD. Rank 0 prints a line of JSON for the library and one for each case. Returns main's exit code.
int run_benchmark(int argc, char** argv, const MakeLibrary& make_library);

}  // namespace trireme::bench
