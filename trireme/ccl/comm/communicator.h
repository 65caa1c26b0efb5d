// The ranks of a job and the operations among them.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "trireme/base/deadline.h"
#include "trireme/ccl/bootstrap/store.h"
#include "trireme/ccl/operation.h"

namespace trireme::ccl {

struct RequestState;
class CommunicatorState;

// An operation under way. Copies refer to the same operation. Any thread may test or wait, several at once.
// Dropping a request does not cancel it: its buffers must live until it is complete, or until its communicator is gone: that ends it with Aborted.
class Request {
 public:
  Request() = default;  // a complete one
  explicit Request(std::shared_ptr<RequestState> state) : state_(std::move(state)) {}

  // Never blocks. Throws what the operation failed with.
  bool test();
  // Blocks until the operation is complete or has failed; then throws what it failed with. An operation's own timeout
  // ends the wait and kills the communicator; `deadline` ends only this wait (returns false).
  void wait();
  bool wait_until(Deadline deadline);
  // False: it was complete, without an error, before submit() returned.
  bool under_way() const { return state_ != nullptr; }
  // Complete or failed. Never blocks, never throws.
  bool finished() const;
  // Nobody will wait for it: a worker takes it up at once, also where the caller usually does the work itself.
  void hand_over();

  // Of a receive, once complete: who sent it, with which tag, and how many bytes.
  int source() const;
  int source_tag() const;
  size_t received_bytes() const;

 private:
  std::shared_ptr<RequestState> state_;
};

struct CommunicatorOptions {
  // Time an operation may take; never by default for a program that set none (CCL has no timeout), c10d passes its own.
  std::chrono::milliseconds timeout = std::chrono::milliseconds::max();
  // Time the ranks have to find each other. Zero: CCL_KVS_CONNECTION_TIMEOUT.
  std::chrono::milliseconds connect_timeout{0};
  // Keys in the store are prefixed with this; two communicators made from one store need different ones.
  std::string name;
  // Ranks with different labels never share memory, as if on different hosts. For tests, and for TRIREME_HOST.
  std::string host_label;
};

// Owns its sockets, shared memory and its place in the progress engine. Threads may share it; operations run in the order of
// submission (point-to-point ones: in order per peer and tag). Submitting never blocks on a peer. After a loss, a mismatch, a timeout
// or abort() it is poisoned: every pending and later operation fails at once with the error that names the cause.
// A forked child may drop its copy and ask it for rank and size; whatever needs the other ranks throws InvalidArgument there.
class Communicator {
 public:
  // Collective over `size` ranks. Throws Timeout or IoError naming who did not come.
  static std::shared_ptr<Communicator> create(int size, int rank, std::shared_ptr<Store> store,
                                              const CommunicatorOptions& options = {});
  // Threads as ranks, without sockets: for tests and for in-process use.
  static std::vector<std::shared_ptr<Communicator>> create_threads(int size, const CommunicatorOptions& options = {});

  ~Communicator();
  Communicator(const Communicator&) = delete;

  int rank() const;
  int size() const;
  // The host of each rank, numbered from 0 in order of their lowest rank.
  const std::vector<int>& hosts() const;
  // "2 hosts x 2 ranks, shared memory with direct reads, tcp": for logs and `trireme info`.
  std::string describe() const;

  // Checks, enqueues and returns. Throws InvalidArgument before anything is sent, or the poison.
  Request submit(Operation&& op);
  Request submit(const Operation& op) { return submit(Operation(op)); }

  // Ranks with the same color form a communicator, ordered by key then rank; color < 0 takes part and gets null. When a group's first rank
  // cannot invite the others (IoError), every rank fails, and this communicator is as it was.
  std::shared_ptr<Communicator> split(int color, int key);

  // Waits until everything submitted is complete or has failed, then leaves, as the destructor does without waiting. What is submitted later
  // fails.
  void finalize();

  // Poisons the communicator on every rank, unblocks every waiter. Any thread may call it.
  void abort(const std::string& reason);
  // What it is poisoned with, or null.
  std::exception_ptr error() const;

  // Memory that every rank of this host can map: operations on it need no copy. Freed by release_shared, any thread.
  // Usable with every communicator of the process.
  static void* allocate_shared(size_t bytes);
  static void release_shared(void* data);
  static bool is_shared(const void* data);

  // What this rank is waiting for and from whom, and how long it has waited for each rank.
  std::string report() const;

 private:
  explicit Communicator(std::shared_ptr<CommunicatorState> state);
  std::shared_ptr<CommunicatorState> state_;
};

}  // namespace trireme::ccl
