// One collective as it runs on one rank: the caller's operation, its number, and the means to carry it out.
#pragma once

#include <memory>
#include <vector>

#include "trireme/ccl/algorithms/choice.h"
#include "trireme/ccl/algorithms/topology.h"
#include "trireme/ccl/algorithms/way.h"
#include "trireme/ccl/engine/task.h"
#include "trireme/ccl/fabric/messenger.h"
#include "trireme/ccl/node/huge_pages.h"
#include "trireme/ccl/node/node.h"
#include "trireme/ccl/operation.h"
#include "trireme/ccl/reduction/reducer.h"

namespace trireme::ccl {

// Steps that a rank publishes in the course of an operation, after kEntered. Staged transfers count on from kFirstChunk.
inline constexpr uint64_t kReduced = 2;     // has read what it needs of the others' inputs
inline constexpr uint64_t kPartReady = 3;   // its part of the result is in place
inline constexpr uint64_t kDone = 4;        // has read what it needs of the others' results
inline constexpr uint64_t kFirstChunk = 16;

// Where a rank's results go: elsewhere, to where its inputs lie, or partly over them.
enum class Placement : uint32_t { apart, same, mixed };

inline Placement placement_of(const Block& send, const Block& recv) { return send.data == recv.data && send.bytes != 0 ? Placement::same : Placement::apart; }

// Elements [begin, end) of a buffer.
struct Range {
  size_t begin = 0, end = 0;
  size_t count() const { return end - begin; }
};
// Cuts `count` elements into `parts` that start on cache lines, as equal as that allows.
Range part_of(size_t count, size_t element_bytes, int parts, int index);

// Buffers that algorithms borrow; kept from operation to operation.
class Scratch {
 public:
  static constexpr size_t kTileBytes = 128 * 1024;
  // `count` tiles of `bytes` each, on cache lines. Valid until the next call.
  std::byte* tiles(size_t count, size_t bytes);
  // One block, for partial results. Valid until the next call.
  std::byte* partial(size_t bytes);

 private:
  struct Buffer {
    std::unique_ptr<std::byte[]> memory;
    std::byte* aligned = nullptr;
    size_t bytes = 0;
    std::byte* at_least(size_t wanted);
  };
  Buffer tiles_, partial_;
};

// What belongs to the communicator, not to the operation.
struct CommContext {
  Engine& engine;
  Node& node;
  Messenger& messenger;
  const Topology& topology;
  WayChooser ways;
  RecurringBuffers recurring;
  const AlgorithmChoices choices = {};
  Scratch scratch;
  bool slots_used = false, early_used = false;
  std::chrono::nanoseconds early_fill{};  // how long this rank took to fill its early slot, the last time
  // The tables of blocks that do not fit an inline slot. Two in turn, and kept: when an operation fails here, another rank may still be
  // reading.
  std::vector<View> large_tables[2] = {};
  uint64_t all_entered = 0;  // the last operation that every local rank is known to have entered
  uint64_t compared = 0;     // the last one whose signature this rank has compared with that of every local rank
};

class OpContext {
 public:
  OpContext(CommContext& comm, const Operation& operation, uint64_t operation_number);

  CommContext& comm;
  const Operation& op;
  const uint64_t number;
  const Signature signature;

  const Topology& topology() const { return comm.topology; }
  Node& node() { return comm.node; }
  PeerMemory& memory() { return comm.node.memory(); }
  int rank() const { return comm.topology.rank; }
  int size() const { return comm.topology.size(); }
  int local() const { return comm.node.rank(); }
  int local_size() const { return comm.node.size(); }
  size_t element_bytes() const { return size_of(op.type); }
  size_t bytes() const { return op.count * element_bytes(); }
  Reducer reducer() const { return Reducer(op.type, op.reduction, size(), op.custom); }

  // Large ones that come back get huge pages.
  void note_buffers();

  // ---- meeting the other ranks of this host
  uint64_t value(uint64_t step) const { return progress_value(number, step); }
  void reach(uint64_t step) { node().advance(value(step)); }
  Node::Reached all_reached(uint64_t step) { return node().reached(value(step)); }
  Node::Reached reached(int local_peer, uint64_t step) { return node().reached(local_peer, value(step)); }

  // co_await may_enter(); announce...(); co_await all_reached(kEntered); check_records();
  Node::Reached may_enter() { return node().reached(progress_value(number - 1, kEntered)); }
  // Writes this rank's record; `payload` goes along inside it (at most kInlineBytes). show_inline leaves node().wake_sleepers() to the caller.
  void announce_inline(const void* payload, size_t payload_bytes) {
    show_inline(payload, payload_bytes);
    node().wake_sleepers();
  }
  void show_inline(const void* payload, size_t payload_bytes);
  // Where a peer's payload of that many bytes lies.
  const std::byte* payload_of(int local_peer, size_t payload_bytes);
  // Without a coroutine: whether this rank may announce itself, and whether all have.
  bool may_enter_now() { return comm.all_entered + 1 >= number || may_enter().ready(); }
  // A rank that is gone shows only its progress, which is not looked at unless `also_gone`: a line that nobody reads costs its owner less to write.
  bool all_entered_now(bool also_gone);
  void announce(Block send, Block recv) { announce(send, recv, {}, placement_of(send, recv)); }
  void announce(Block send, Block recv, const std::vector<Block>& blocks, Placement placement = Placement::apart);
  // The same, with `send` copied into this rank's early slot: who comes last finds everything there, and nobody waits for anybody afterwards. `slot_bytes`, the
  // most that any rank sends, is the same on all of them. Leaves node().wake_sleepers() to the caller.
  void show_early(Block send, Block recv, const std::vector<Block>& blocks, size_t slot_bytes);
  // After check_records(): whether everybody's payload lies in its early slot. Then end_way() when this rank has read them.
  bool begin_early(size_t slot_bytes);
  const std::byte* early_payload(int local_peer) { return node().segment().early_slot(local_peer, number, way_bytes_); }
  // Throws Mismatch or PeerLost (for a rank that left) when the others did not come to the same operation.
  void check_records();
  void check_record(int local_peer);
  const Record& record(int local_peer) { return node().segment().record(local_peer, number); }
  // Every rank's buffers can be read and written by the others: the same answer on every rank of the host.
  bool all_reachable();
  bool all_placed(Placement placement);
  bool any_in_place() { return !all_placed(Placement::apart); }
  // Some rank's buffers are plain pointers to the others: they need no copying before use.
  bool any_mapped();
  // How the ranks of this host, which is the only one, move the operation's data: the same answer on every rank. After check_records(); end_way() when
  // everybody is done. Where `direct_is_legal` is false it is never direct.
  Way begin_way(bool direct_is_legal = true);
  void end_way();
  Way way() const { return way_; }
  // Where slots are filled around the caches, results that fit them have all of them: those go around only from `least_bytes` on.
  bool results_around_caches(size_t least_bytes) const { return way_ == Way::past || (way_ == Way::around && way_bytes_ >= least_bytes); }
  // Block `rank` of a peer that announced one block per rank.
  View block_view(int local_peer, int block);
  // Into a peer's buffer; a large one in pieces, so that a failure elsewhere stops it soon.
  void write(int local_peer, const View& view, size_t offset, const std::byte* data, size_t bytes);
  // Throws Mismatch when a peer's count is not what this rank expects of it.
  void check_bytes(int local_peer, size_t theirs, size_t expected) const;

  // ---- messages to any rank
  Transfer transfer(int peer, uint32_t step, void* data, size_t bytes) const;
  void post_send(Transfer& transfer) { comm.messenger.send(transfer); }
  void post_receive(Transfer& transfer) { comm.messenger.receive(transfer); }
  Messenger::Done done(Transfer& transfer) { return comm.messenger.done(transfer); }

 private:
  std::vector<View>& large_table() { return comm.large_tables[number & 1]; }
  Way way_ = Way::slots;
  size_t way_bytes_ = 0;  // by which it was chosen
  std::optional<std::chrono::steady_clock::time_point> way_began_;  // on the rank that measures
  int entered_cursor_ = 0;  // local ranks before this one have entered
  Record& begin_record();
  Record& describe_buffers(Block send, Block recv, const std::vector<Block>& blocks, Placement placement);
  void check_previous();
  void show(Record& record);
};

inline Task nothing_to_do() { co_return; }

// ---- the collectives; each picks its algorithm. See docs/ccl.md for steps and bytes of each.
Task run_collective(OpContext& run);
Task barrier(OpContext& run);
Task allreduce(OpContext& run);
Task reduce(OpContext& run);
Task broadcast(OpContext& run);
Task allgather(OpContext& run);
Task alltoall(OpContext& run);
Task reduce_scatter(OpContext& run);
Task gather(OpContext& run);
Task scatter(OpContext& run);
// From when everybody of this host has announced itself and the records were checked; the latter two where there is no other host.
Task allreduce_announced(OpContext& run);
Task allgather_announced(OpContext& run);
Task reduce_scatter_announced(OpContext& run);

}  // namespace trireme::ccl
