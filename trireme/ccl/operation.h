// One collective or point-to-point operation as the caller stated it: plain data, checked once by validate().
#pragma once

#include <chrono>
#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "trireme/ccl/types.h"

namespace trireme::ccl {

enum class OpKind : uint8_t {
  barrier, allreduce, reduce, broadcast, allgather, alltoall, reduce_scatter, gather, scatter, send, recv
};
inline constexpr int kOpKinds = 11;
std::string_view name_of(OpKind kind);

inline constexpr int kAnySource = -1;
inline constexpr int kAnyTag = -1;

// A piece of memory, for one rank's share of an operation.
struct Block {
  void* data = nullptr;
  size_t bytes = 0;
};

// Where each kind finds its data. `count` is in elements of `type`.
//   allreduce, reduce      send_buffer, recv_buffer, count; reduce: root, recv_buffer only there
//   broadcast              send_buffer on the root, recv_buffer elsewhere (on the root too: a copy if it differs), count
//   reduce_scatter         send_buffer: all ranks' parts end to end; recv_buffer: mine; recv_counts[r] elements for rank r
//   allgather, gather      send_buffer, count; recv_blocks[r]: where rank r's share goes (gather: on the root only)
//   alltoall               send_blocks[r], recv_blocks[r]
//   scatter                send_blocks[r] on the root; recv_buffer, count
//   send, recv             send_buffer or recv_buffer, count, peer, tag; recv may name kAnySource and kAnyTag
// In place: send_buffer == recv_buffer, or the caller's own block is the same memory on both sides.
struct Operation {
  OpKind kind = OpKind::barrier;
  DataType type = DataType::uint8;
  Reduction reduction = Reduction::sum;
  CustomReduction custom;
  int root = -1;
  int peer = kAnySource;
  int tag = 0;
  size_t count = 0;
  const void* send_buffer = nullptr;
  void* recv_buffer = nullptr;
  std::vector<size_t> recv_counts;
  std::vector<Block> send_blocks;
  std::vector<Block> recv_blocks;
  // What the ranks must agree on, where that is more than what is carried out: a reduction by a program's function, say, of which the library
  // only moves the bytes.
  struct Stated {
    OpKind kind;
    DataType type;
    Reduction reduction;
    size_t count;
  };
  std::optional<Stated> stated;
  // Zero: the communicator's own timeout.
  std::chrono::milliseconds timeout{0};
  // The caller waits at once: do not hand the work to a worker thread.
  bool caller_waits = false;
  // Called once, when the collectives before this one are complete and its data are not yet read: for data that depend on theirs. An operation that
  // never starts drops it. The thread that drives calls it: it must not wait for an operation of the same communicator. What it throws ends that.
  std::function<void()> on_start;
  // Called once, when the operation is complete or has failed (not when submit() itself throws), before a waiter learns of it; then
  // dropped with all that it holds, so that it may own the buffers. The thread that drove the operation calls it: it must not throw, nor
  // wait for an operation of the same communicator.
  std::function<void(const std::exception_ptr& error)> on_finished;
};

// Throws InvalidArgument naming the argument; nothing has been sent then.
void validate(const Operation& op, int rank, int size);

inline bool is_message(const Operation& op) { return op.kind == OpKind::send || op.kind == OpKind::recv; }

// "allreduce of 1024 float32 (sum)": for messages.
std::string describe(const Operation& op);

}  // namespace trireme::ccl
