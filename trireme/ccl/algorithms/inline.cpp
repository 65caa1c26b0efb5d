#include "trireme/ccl/algorithms/inline.h"

#include <array>
#include <cstring>
#include <span>

#include "trireme/ccl/algorithms/choice.h"
#include "trireme/ccl/algorithms/copy.h"

namespace trireme::ccl {
namespace {

const std::vector<Block> kNoBlocks;

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

// Every rank reads what all others send, so that many ranks gain less from it than from sharing the work. Up to the inline limit no setting of one rank's has a
// say: there is no other algorithm to fall back on when the ranks do not agree.
bool fits_early(const CommContext& comm, size_t bytes) {
  return bytes > kEarlyLeast && (bytes <= kInlineBytes || comm.ways.may_go_early()) && bytes <= kEarlyBytes / static_cast<size_t>(comm.topology.size() - 1);
}

void show_early(OpContext& run, size_t slot_bytes) {
  const Operation& op = run.op;
  Block send{const_cast<void*>(op.send_buffer), payload_bytes(op)};
  Block recv = op.kind == OpKind::allreduce ? Block{op.recv_buffer, run.bytes()} : Block{};
  run.show_early(send, recv, op.kind == OpKind::allgather ? op.recv_blocks : kNoBlocks, slot_bytes);
}

// What a rank of this host sends, from byte `offset` on. This rank's own comes from the slot, which it has just written, only where the result lies partly over it.
const std::byte* payload(OpContext& run, bool early, int peer, size_t bytes, size_t offset, const void* result, size_t result_bytes) {
  if (peer == run.local()) {
    auto own = static_cast<const std::byte*>(run.op.send_buffer), to = static_cast<const std::byte*>(result);
    bool apart = to + result_bytes <= own || own + bytes <= to;
    if (apart || to == own + offset) return own + offset;
  }
  return (early ? run.early_payload(peer) : run.payload_of(peer, bytes)) + offset;
}

// The way through the reducer takes longer than a few additions do. In its order: first + second, + third.
template <class T>
void add_few(std::span<const void* const> sources, void* result, size_t count) {
  auto at = [](const void* values, size_t i) {
    T value;
    std::memcpy(&value, static_cast<const std::byte*>(values) + i * sizeof(T), sizeof(T));
    return value;
  };
  for (size_t i = 0; i < count; ++i) {
    T sum = at(sources[0], i);
    for (const void* source : sources.subspan(1)) sum += at(source, i);
    std::memcpy(static_cast<std::byte*>(result) + i * sizeof(T), &sum, sizeof(T));
  }
}

void reduce_payloads(OpContext& run, bool early, size_t first_element, size_t count) {
  if (count == 0) return;
  const size_t element = run.element_bytes(), bytes = payload_bytes(run.op);
  std::array<const void*, kMaxLocalRanks> sources;
  bool from_memory = false;
  for (int peer = 0; peer < run.local_size(); ++peer) {
    sources[peer] = payload(run, early, peer, bytes, first_element * element, run.op.recv_buffer, count * element);
    from_memory = from_memory || (early && run.record(peer).manner.way == static_cast<uint32_t>(Way::around));
  }
  std::span<const void* const> all(sources.data(), static_cast<size_t>(run.local_size()));
  if (run.op.reduction == Reduction::sum && count * element <= kTinyBytes) {
    if (run.op.type == DataType::float32) return add_few<float>(all, run.op.recv_buffer, count);
    if (run.op.type == DataType::float64) return add_few<double>(all, run.op.recv_buffer, count);
  }
  run.reducer().reduce(all, run.op.recv_buffer, count, Stage::whole, from_memory ? Access::interleaved : Access::cached);
}

void gather_payloads(OpContext& run, bool early) {
  for (int rank = 0; rank < run.size(); ++rank) {
    const Block& block = run.op.recv_blocks[rank];
    if (block.bytes != 0) copy_own(block.data, payload(run, early, rank, block.bytes, 0, block.data, block.bytes), block.bytes, block.bytes);
  }
}

}  // namespace

bool fits_inline(const CommContext& comm, const Operation& op) {
  bool suits = op.kind == OpKind::barrier || op.kind == OpKind::allreduce || op.kind == OpKind::allgather || op.kind == OpKind::reduce_scatter;
  if (!suits || !comm.topology.one_host() || comm.topology.size() == 1) return false;
  size_t bytes = largest_payload(op);
  if (bytes > kInlineBytes && !fits_early(comm, bytes)) return false;
  Algorithm algorithm = comm.choices.of(op.kind, bytes);
  return algorithm == Algorithm::automatic || algorithm == Algorithm::hierarchical;
}

void show_payload(OpContext& run) {
  size_t largest = largest_payload(run.op);
  if (fits_early(run.comm, largest)) show_early(run, largest);
  else run.show_inline(run.op.send_buffer, payload_bytes(run.op));
}

bool finish_inline(OpContext& run) {
  run.check_records();
  const size_t largest = largest_payload(run.op);
  const bool early = fits_early(run.comm, largest);
  if (early && !run.begin_early(largest)) return false;
  switch (run.op.kind) {
    case OpKind::allreduce: reduce_payloads(run, early, 0, run.op.count); break;
    case OpKind::reduce_scatter: {
      size_t before = 0;
      for (int rank = 0; rank < run.rank(); ++rank) before += run.op.recv_counts[rank];
      reduce_payloads(run, early, before, run.op.recv_counts[run.rank()]);
      break;
    }
    case OpKind::allgather: gather_payloads(run, early); break;
    default: break;
  }
  run.end_way();
  return true;
}

Task meet_inline(OpContext& run, bool announced) {
  if (!announced) {
    co_await run.may_enter();
    show_payload(run);
    run.node().wake_sleepers();
  }
  co_await run.all_reached(kEntered);
  if (finish_inline(run)) co_return;
  switch (run.op.kind) {
    case OpKind::allreduce: co_await allreduce_announced(run); break;
    case OpKind::allgather: co_await allgather_announced(run); break;
    default: co_await reduce_scatter_announced(run); break;
  }
}

}  // namespace trireme::ccl
