// Allgather, with equal or different counts. In a host everybody writes its block into everybody's result. Between hosts a
// block crosses each wire once: to one rank of every other host, which the others of that host then copy it from.
#include <cstring>

#include "trireme/ccl/algorithms/choice.h"
#include "trireme/ccl/algorithms/copy.h"
#include "trireme/ccl/algorithms/phases.h"

namespace trireme::ccl {
namespace {

const std::byte* input(OpContext& run) { return static_cast<const std::byte*>(run.op.send_buffer); }
const Block& block_of(OpContext& run, int rank) { return run.op.recv_blocks[rank]; }

size_t largest_block(OpContext& run) {
  size_t largest = 0;
  for (const Block& block : run.op.recv_blocks) largest = std::max(largest, block.bytes);
  return largest;
}

void place_own_block(OpContext& run) {
  const Block& mine = block_of(run, run.rank());
  copy_own(mine.data, run.op.send_buffer, mine.bytes, mine.bytes);
}

Task allgather_in_host(OpContext& run) {
  co_await run.may_enter();
  run.announce({const_cast<std::byte*>(input(run)), run.bytes()}, {}, run.op.recv_blocks);
  co_await run.all_reached(kEntered);
  run.check_records();
  co_await allgather_announced(run);
}

// Between hosts: rank r's block goes to the rank numbered local(r) mod n of every other host.
Task exchange_between_hosts(OpContext& run) {
  const Topology& topology = run.topology();
  std::vector<Transfer> transfers;
  transfers.reserve(static_cast<size_t>(run.size() + topology.host_count()));
  for (int rank = 0; rank < run.size(); ++rank) {
    if (topology.hosts[rank] == topology.my_host() || topology.local[rank] % run.local_size() != run.local()) continue;
    transfers.push_back(run.transfer(rank, 1, block_of(run, rank).data, block_of(run, rank).bytes));
    run.post_receive(transfers.back());
  }
  for (int step = 1; step < topology.host_count(); ++step) {
    const auto& members = topology.members[(topology.my_host() + step) % topology.host_count()];
    int to = members[static_cast<size_t>(run.local()) % members.size()];
    transfers.push_back(run.transfer(to, 1, const_cast<std::byte*>(input(run)), run.bytes()));
    run.post_send(transfers.back());
  }
  for (Transfer& transfer : transfers) co_await run.done(transfer);
}

Task allgather_hierarchical(OpContext& run) {
  const Topology& topology = run.topology();
  place_own_block(run);
  co_await run.may_enter();
  run.announce({const_cast<std::byte*>(input(run)), run.bytes()}, {}, run.op.recv_blocks);
  co_await run.all_reached(kEntered);
  run.check_records();
  bool direct = run.all_reachable();
  if (direct) {
    // Own host first: its blocks are there already.
    for (int step = 1; step < run.local_size(); ++step) {
      int owner = (run.local() + step) % run.local_size();
      const Block& block = block_of(run, run.node().global_rank(owner));
      run.memory().read(owner, run.record(owner).send, 0, block.data, block.bytes);
    }
  } else {
    std::vector<Block> parts;
    for (int peer = 0; peer < run.local_size(); ++peer) parts.push_back(block_of(run, run.node().global_rank(peer)));
    co_await share_parts_staged(run, input(run), parts, kFirstChunk);
  }
  uint64_t step = kFirstChunk + steps_through_slots(run, largest_block(run));
  co_await exchange_between_hosts(run);
  run.reach(step);
  co_await run.all_reached(step);
  for (int rank = 0; rank < run.size(); ++rank) {
    if (topology.hosts[rank] == topology.my_host()) continue;
    int holder = topology.local[rank] % run.local_size();
    const Block& block = block_of(run, rank);
    if (!direct) {
      std::vector<Block> parts(static_cast<size_t>(run.local_size()));
      parts[holder] = block;
      co_await share_parts_staged(run, static_cast<std::byte*>(block.data), parts, step);
      step += steps_through_slots(run, block.bytes);
    } else if (holder != run.local()) {
      run.memory().read(holder, run.block_view(holder, rank), 0, block.data, block.bytes);
    }
  }
  run.reach(step + 1);
  co_await run.all_reached(step + 1);
}

// Every rank sends its block to every other, wherever it is.
Task allgather_flat(OpContext& run) {
  place_own_block(run);
  co_await run.may_enter();
  run.announce({}, {});
  std::vector<Block> outgoing(static_cast<size_t>(run.size()), {const_cast<std::byte*>(input(run)), run.bytes()});
  co_await exchange_with_all(run, outgoing, run.op.recv_blocks);
}

}  // namespace

// One host: a tile of this rank's block is read once from memory, and goes from the cache to all places where it is wanted.
Task allgather_announced(OpContext& run) {
  constexpr size_t kTile = 256 * 1024;
  const Block& mine = block_of(run, run.rank());
  if (run.begin_way() == Way::direct) {
    for (size_t offset = 0; offset < mine.bytes; offset += kTile) {
      size_t bytes = std::min(kTile, mine.bytes - offset);
      copy_own(static_cast<std::byte*>(mine.data) + offset, input(run) + offset, bytes, mine.bytes);
      for (int step = 1; step < run.local_size(); ++step) {
        int peer = (run.local() + step) % run.local_size();
        run.write(peer, run.block_view(peer, run.rank()), offset, input(run) + offset, bytes);
      }
    }
    run.reach(kDone);
    co_await run.all_reached(kDone);
  } else {
    co_await share_parts_staged(run, input(run), run.op.recv_blocks, kFirstChunk, Last::yes);
  }
  run.end_way();
}

Task allgather(OpContext& run) {
  bool one_host = run.topology().one_host();
  size_t largest = largest_block(run);
  Algorithm algorithm = run.comm.choices.of(OpKind::allgather, largest);
  bool flat = algorithm == Algorithm::flat || algorithm == Algorithm::ring;
  if (!one_host && algorithm == Algorithm::automatic) flat = largest <= kInlineBytes;
  if (run.size() == 1) {
    place_own_block(run);
    return nothing_to_do();
  }
  if (flat) return allgather_flat(run);
  return one_host ? allgather_in_host(run) : allgather_hierarchical(run);
}

}  // namespace trireme::ccl
