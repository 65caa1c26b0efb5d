#include "trireme/ccl/algorithms/inline.h"

#include <array>
#include <cstring>

#include "trireme/ccl/algorithms/choice.h"

namespace trireme::ccl {
namespace {

size_t payload_bytes(const Operation& op) {
  size_t count = op.count;
  if (op.kind == OpKind::reduce_scatter) {
    count = 0;
    for (size_t part : op.recv_counts) count += part;
  }
  return count * size_of(op.type);
}

size_t largest_payload(const Operation& op) {
  if (op.kind != OpKind::allgather) return payload_bytes(op);
  size_t largest = 0;
  for (const Block& block : op.recv_blocks) largest = std::max(largest, block.bytes);
  return largest;
}

void reduce_payloads(OpContext& run, size_t first_element, size_t count) {
  if (count == 0) return;
  std::array<const void*, kMaxLocalRanks> sources;
  for (int peer = 0; peer < run.local_size(); ++peer) sources[peer] = run.payload_of(peer, payload_bytes(run.op)) + first_element * run.element_bytes();
  run.reducer().reduce({sources.data(), static_cast<size_t>(run.local_size())}, run.op.recv_buffer, count);
}

}  // namespace

bool fits_inline(const CommContext& comm, const Operation& op) {
  bool suits = op.kind == OpKind::barrier || op.kind == OpKind::allreduce || op.kind == OpKind::allgather || op.kind == OpKind::reduce_scatter;
  if (!suits || !comm.topology.one_host() || comm.topology.size() == 1) return false;
  size_t bytes = largest_payload(op);
  if (bytes > kInlineBytes) return false;
  Algorithm algorithm = comm.choices.of(op.kind, bytes);
  return algorithm == Algorithm::automatic || algorithm == Algorithm::hierarchical;
}

void show_payload(OpContext& run) { run.show_inline(run.op.send_buffer, payload_bytes(run.op)); }

void finish_inline(OpContext& run) {
  run.check_records();
  switch (run.op.kind) {
    case OpKind::allreduce: reduce_payloads(run, 0, run.op.count); break;
    case OpKind::reduce_scatter: {
      size_t before = 0;
      for (int rank = 0; rank < run.rank(); ++rank) before += run.op.recv_counts[rank];
      reduce_payloads(run, before, run.op.recv_counts[run.rank()]);
      break;
    }
    case OpKind::allgather:
      for (int rank = 0; rank < run.size(); ++rank) {
        const Block& block = run.op.recv_blocks[rank];
        if (block.bytes != 0) std::memcpy(block.data, run.payload_of(rank, block.bytes), block.bytes);
      }
      break;
    default: break;
  }
}

Task meet_inline(OpContext& run, bool announced) {
  if (!announced) {
    co_await run.may_enter();
    show_payload(run);
    run.node().wake_sleepers();
  }
  co_await run.all_reached(kEntered);
  finish_inline(run);
}

}  // namespace trireme::ccl
