// Alltoall, gather and scatter: every block has one sender and one receiver, so a hierarchy gains nothing. In a host the blocks are copied
// straight between the ranks' buffers; between hosts they are messages.
#include <cstring>

#include "trireme/ccl/algorithms/choice.h"
#include "trireme/ccl/algorithms/copy.h"
#include "trireme/ccl/algorithms/phases.h"

namespace trireme::ccl {
namespace {

void copy_block(const Block& from, const Block& to) {
  if (to.bytes != 0 && from.data != to.data) std::memmove(to.data, from.data, to.bytes);
}

bool in_place(const Operation& op) {
  for (size_t rank = 0; rank < op.send_blocks.size(); ++rank) {
    for (const Block& out : op.recv_blocks) {
      const Block& in = op.send_blocks[rank];
      auto a = static_cast<std::byte*>(in.data), b = static_cast<std::byte*>(out.data);
      if (a < b + out.bytes && b < a + in.bytes) return true;
    }
  }
  return false;
}

// A round of swaps may take this many chunks: rounds of all ranks of a host must fit into an operation's steps.
constexpr uint64_t kChunksPerRound = 60'000;
static_assert(kFirstChunk + kMaxLocalRanks * kChunksPerRound < uint64_t{1} << kStepBits);

// Every block is received where it is sent from, or none where another lies.
Placement placement_of(OpContext& run) {
  bool same = true, small = true;
  for (size_t rank = 0; rank < run.op.send_blocks.size(); ++rank) {
    const Block& in = run.op.send_blocks[rank];
    const Block& out = run.op.recv_blocks[rank];
    same = same && in.data == out.data && in.bytes == out.bytes;
    small = small && steps_through_slots(run, std::max(in.bytes, out.bytes)) < kChunksPerRound;
  }
  if (same && small) return Placement::same;
  return small && !in_place(run.op) ? Placement::apart : Placement::mixed;
}

// Where this rank's receives go first: to a copy, when they would overwrite what others still have to read.
struct Landing {
  bool aside;
  std::vector<Block> blocks;

  explicit Landing(OpContext& run) : aside(in_place(run.op)), blocks(run.op.recv_blocks) {
    if (!aside) return;
    size_t total = 0;
    for (const Block& block : blocks) total += block.bytes;
    std::byte* at = run.comm.scratch.partial(total);
    for (Block& block : blocks) {
      block.data = at;
      at += block.bytes;
    }
  }
  void deliver(const Operation& op) const {
    if (!aside) return;
    for (size_t rank = 0; rank < blocks.size(); ++rank) copy_block(blocks[rank], op.recv_blocks[rank]);
  }
};

// Small blocks lie in the sender's inline slot, behind a list of where each ends.
size_t inline_bytes(const std::vector<Block>& blocks) {
  size_t total = blocks.size() * sizeof(uint32_t);
  for (const Block& block : blocks) total += std::min(block.bytes, kInlineBytes);
  return total;
}

void announce_blocks(OpContext& run) {
  const std::vector<Block>& blocks = run.op.send_blocks;
  if (inline_bytes(blocks) > kInlineBytes) {
    run.announce({}, {}, blocks, placement_of(run));
    return;
  }
  std::byte packed[kInlineBytes];
  std::memset(packed, 0, kTinyBytes + 1);
  uint32_t at = static_cast<uint32_t>(blocks.size() * sizeof(uint32_t));
  for (size_t rank = 0; rank < blocks.size(); ++rank) {
    if (blocks[rank].bytes != 0) std::memcpy(packed + at, blocks[rank].data, blocks[rank].bytes);
    at += static_cast<uint32_t>(blocks[rank].bytes);
    std::memcpy(packed + rank * sizeof at, &at, sizeof at);
  }
  // The readers do not know the total: it always goes to the slot, never to the record.
  run.announce_inline(packed, std::max<size_t>(at, kTinyBytes + 1));
}

// Where in a peer's slot its block for `rank` lies.
Range inlined_block(OpContext& run, int peer, int rank) {
  const std::byte* slot = run.node().segment().inline_slot(peer, run.number);
  auto end_of = [&](int r) {
    uint32_t end = static_cast<uint32_t>(static_cast<size_t>(run.size()) * sizeof(uint32_t));
    if (r >= 0) std::memcpy(&end, slot + static_cast<size_t>(r) * sizeof end, sizeof end);
    return end;
  };
  return {end_of(rank - 1), end_of(rank)};
}

void copy_inlined_block(OpContext& run, int peer, const Block& to) {
  Range block = inlined_block(run, peer, run.rank());
  run.check_bytes(peer, block.count(), to.bytes);
  if (to.bytes != 0) std::memcpy(to.data, run.node().segment().inline_slot(peer, run.number) + block.begin, to.bytes);
}

// Ranks know only their own blocks, so the one that decides is the largest that any has announced: the same answer on every rank.
bool chose_messages(OpContext& run) {
  if (!run.comm.choices.concern(OpKind::alltoall)) return false;
  size_t largest = 0;
  for (int peer = 0; peer < run.size(); ++peer) {
    for (int rank = 0; rank < run.size(); ++rank) {
      size_t bytes = run.record(peer).manner.inlined ? inlined_block(run, peer, rank).count() : run.block_view(peer, rank).bytes;
      largest = std::max(largest, bytes);
    }
  }
  Algorithm algorithm = run.comm.choices.of(OpKind::alltoall, largest);
  return algorithm == Algorithm::flat || algorithm == Algorithm::ring;
}

// In round s rank r meets rank s - r. In place, or with all blocks apart.
Task alltoall_through_slots(OpContext& run) {
  for (int round = 0; round < run.size(); ++round) {
    int peer = (round - run.rank() + run.size()) % run.size();
    const Block &out = run.op.send_blocks[peer], &in = run.op.recv_blocks[peer];
    if (peer == run.rank()) {
      copy_result(run, in.data, out.data, out.bytes);
      continue;
    }
    run.check_bytes(peer, run.block_view(peer, run.rank()).bytes, in.bytes);
    auto bytes_of = [](const Block& block, size_t offset, size_t room) { return offset < block.bytes ? std::min(room, block.bytes - offset) : 0; };
    co_await through_slots(
        run, peer, std::max(out.bytes, in.bytes), 1, Flow::exchange, kFirstChunk + static_cast<uint64_t>(round) * kChunksPerRound,
        round + 1 == run.size() ? Last::yes : Last::no,
        [&](std::byte* slot, size_t offset, size_t room) {
          copy_to_slot(run, slot, static_cast<const std::byte*>(out.data) + offset, bytes_of(out, offset, room));
        },
        [&](auto slot_of, size_t offset, size_t room) {
          copy_result(run, static_cast<std::byte*>(in.data) + offset, slot_of(peer), bytes_of(in, offset, room));
        });
  }
}

Task alltoall_in_host(OpContext& run) {
  Landing landing(run);
  bool all_inlined = true;
  const Block& own = run.op.send_blocks[run.rank()];
  if (landing.aside) copy_block(own, landing.blocks[run.rank()]);
  else copy_own(landing.blocks[run.rank()].data, own.data, own.bytes, own.bytes);
  for (int step = 1; step < run.size(); ++step) {
    int peer = (run.rank() + step) % run.size();
    const Block& to = landing.blocks[peer];
    if (run.record(peer).manner.inlined) {
      copy_inlined_block(run, peer, to);
      continue;
    }
    all_inlined = false;
    View view = run.block_view(peer, run.rank());
    run.check_bytes(peer, view.bytes, to.bytes);
    run.memory().read(peer, view, 0, to.data, to.bytes);
  }
  // Who reads nobody's memory and is read by nobody is done; the decision is the same on both sides of every pair.
  if (!all_inlined || !run.record(run.local()).manner.inlined) {
    run.reach(kDone);
    co_await run.all_reached(kDone);
  }
  landing.deliver(run.op);
}

Task alltoall_messages(OpContext& run) {
  Landing landing(run);
  copy_block(run.op.send_blocks[run.rank()], landing.blocks[run.rank()]);
  co_await exchange_with_all(run, run.op.send_blocks, landing.blocks);
  landing.deliver(run.op);
}

// How the ranks of one host do it: the same answer on all of them. Where blocks lie in the records, or partly over each other, slots are of no use.
enum class Exchange { messages, direct, slots };

Exchange exchange_in_host(OpContext& run) {
  if (chose_messages(run)) return Exchange::messages;
  if (run.all_placed(Placement::same)) {
    run.begin_way(false);
    return Exchange::slots;
  }
  bool inlined = false;
  for (int peer = 0; peer < run.size(); ++peer) inlined = inlined || run.record(peer).manner.inlined;
  if (!inlined && run.all_placed(Placement::apart) && run.begin_way() != Way::direct) return Exchange::slots;
  return run.all_reachable() ? Exchange::direct : Exchange::messages;
}

}  // namespace

Task alltoall(OpContext& run) {
  if (run.size() == 1) {
    copy_block(run.op.send_blocks[0], run.op.recv_blocks[0]);
    co_return;
  }
  co_await run.may_enter();
  if (!run.topology().one_host()) {
    run.announce({}, {});
    co_await alltoall_messages(run);
    co_return;
  }
  announce_blocks(run);
  co_await run.all_reached(kEntered);
  run.check_records();
  switch (exchange_in_host(run)) {
    case Exchange::messages: co_await alltoall_messages(run); break;
    case Exchange::direct: co_await alltoall_in_host(run); break;
    case Exchange::slots: co_await alltoall_through_slots(run); break;
  }
  run.end_way();
}

Task gather(OpContext& run) {
  bool root = run.rank() == run.op.root;
  co_await run.may_enter();
  run.announce({}, {});
  if (!root) {
    Transfer send = run.transfer(run.op.root, 1, const_cast<void*>(run.op.send_buffer), run.bytes());
    run.post_send(send);
    co_await run.done(send);
    co_return;
  }
  copy_block({const_cast<void*>(run.op.send_buffer), run.bytes()}, run.op.recv_blocks[run.rank()]);
  std::vector<Transfer> transfers;
  transfers.reserve(static_cast<size_t>(run.size()));
  for (int rank = 0; rank < run.size(); ++rank) {
    if (rank == run.rank()) continue;
    transfers.push_back(run.transfer(rank, 1, run.op.recv_blocks[rank].data, run.op.recv_blocks[rank].bytes));
    run.post_receive(transfers.back());
  }
  for (Transfer& transfer : transfers) co_await run.done(transfer);
}

Task scatter(OpContext& run) {
  bool root = run.rank() == run.op.root;
  co_await run.may_enter();
  run.announce({}, {});
  if (!root) {
    Transfer receive = run.transfer(run.op.root, 1, run.op.recv_buffer, run.bytes());
    run.post_receive(receive);
    co_await run.done(receive);
    co_return;
  }
  copy_block(run.op.send_blocks[run.rank()], {run.op.recv_buffer, run.bytes()});
  std::vector<Transfer> transfers;
  transfers.reserve(static_cast<size_t>(run.size()));
  for (int rank = 0; rank < run.size(); ++rank) {
    if (rank == run.rank()) continue;
    transfers.push_back(run.transfer(rank, 1, run.op.send_blocks[rank].data, run.op.send_blocks[rank].bytes));
    run.post_send(transfers.back());
  }
  for (Transfer& transfer : transfers) co_await run.done(transfer);
}

}  // namespace trireme::ccl
