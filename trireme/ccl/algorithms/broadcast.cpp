// Broadcast. In a host the root's memory is read by the others while the root itself writes a share into theirs, so that all cores
// work. Between hosts each lane carries its part down a binomial tree of hosts.
#include <cstring>

#include "trireme/ccl/algorithms/choice.h"
#include "trireme/ccl/algorithms/copy.h"
#include "trireme/ccl/algorithms/phases.h"

namespace trireme::ccl {
namespace {

std::byte* buffer(OpContext& run) {
  return static_cast<std::byte*>(run.rank() == run.op.root ? const_cast<void*>(run.op.send_buffer) : run.op.recv_buffer);
}

void copy_on_root(OpContext& run) {
  if (run.rank() == run.op.root && run.op.recv_buffer) copy_own(run.op.recv_buffer, run.op.send_buffer, run.bytes(), run.bytes());
}

// Small, one host: the payload lies in the root's record.
Task broadcast_inline(OpContext& run, int root) {
  co_await run.may_enter();
  run.announce_inline(run.op.send_buffer, run.local() == root ? run.bytes() : 0);
  if (run.local() == root) co_return;
  co_await run.reached(root, kEntered);
  run.check_record(root);
  if (run.bytes() != 0) std::memcpy(run.op.recv_buffer, run.payload_of(root, run.bytes()), run.bytes());
}

// In place, P - 1 of the P ranks want n bytes, and each of the P does (P - 1)/P n of the copying: the first part is pulled, the rest pushed.
// Out of place the root wants n bytes as well: then everybody copies its own.
Task broadcast_pull_push(OpContext& run, int root) {
  constexpr size_t kTile = 256 * 1024;
  size_t total = run.bytes();
  size_t pulled = total;
  if (run.record(root).manner.placement == static_cast<uint32_t>(Placement::same)) pulled -= total / static_cast<size_t>(run.local_size()) / kCacheLine * kCacheLine;
  if (run.local() != root) {
    for (size_t offset = 0; offset < pulled; offset += kTile) {
      run.memory().read(root, run.record(root).send, offset, buffer(run) + offset, std::min(kTile, pulled - offset));
    }
  } else {
    for (size_t offset = pulled; offset < total; offset += kTile) {
      for (int peer = 0; peer < run.local_size(); ++peer) {
        if (peer != root) run.write(peer, run.record(peer).recv, offset, buffer(run) + offset, std::min(kTile, total - offset));
      }
    }
    copy_on_root(run);
  }
  run.reach(kDone);
  co_await run.all_reached(kDone);
}

Task broadcast_in_host(OpContext& run, int root) {
  co_await run.may_enter();
  std::byte* mine = buffer(run);
  const Block result = {run.op.recv_buffer ? run.op.recv_buffer : mine, run.bytes()};
  run.announce({mine, run.bytes()}, result);
  co_await run.all_reached(kEntered);
  run.check_records();
  if (run.begin_way() == Way::direct) {
    co_await broadcast_pull_push(run, root);
  } else {
    std::vector<Block> parts(static_cast<size_t>(run.local_size()));
    parts[root] = result;
    co_await share_parts_staged(run, mine, parts, kFirstChunk);
  }
  run.end_way();
}

// Several hosts: on the root's host each lane fetches its part from the root; then down the trees; then to everybody in each host.
Task broadcast_lanes(OpContext& run) {
  const Topology& topology = run.topology();
  int root_host = topology.hosts[run.op.root];
  bool here = topology.my_host() == root_host;
  std::byte* mine = buffer(run);
  co_await run.may_enter();
  run.announce({mine, run.bytes()}, {mine, run.bytes()});
  co_await run.all_reached(kEntered);
  run.check_records();
  // Whether lanes can be used is a property of all hosts, so it must not depend on this host's buffers: the root's host and the
  // others move the same parts either way, and only the copying inside a host differs.
  bool direct = run.all_reachable();
  size_t element = run.element_bytes();
  std::vector<Block> parts(static_cast<size_t>(run.local_size()));
  for (int lane = 0; lane < topology.lanes; ++lane) {
    Range range = part_of(run.op.count, element, topology.lanes, lane);
    parts[lane] = {mine + range.begin * element, range.count() * element};
  }
  uint64_t step = kFirstChunk;
  if (here) {
    int root = topology.local[run.op.root];
    if (direct) {
      if (run.local() != root) run.memory().read(root, run.record(root).send, 0, mine, run.bytes());
    } else {
      std::vector<Block> whole(parts.size());
      whole[root] = {mine, run.bytes()};
      co_await share_parts_staged(run, mine, whole, step);
    }
  }
  step += steps_through_slots(run, run.bytes());
  if (run.local() < topology.lanes) {
    co_await broadcast_lane(run, run.local(), root_host, static_cast<std::byte*>(parts[run.local()].data), parts[run.local()].bytes);
  }
  run.reach(step);
  if (!here) {
    co_await run.all_reached(step);
    if (direct) {
      for (int owner = 0; owner < topology.lanes; ++owner) {
        if (owner == run.local()) continue;
        size_t offset = static_cast<size_t>(static_cast<std::byte*>(parts[owner].data) - mine);
        run.memory().read(owner, run.record(owner).recv, offset, parts[owner].data, parts[owner].bytes);
      }
    } else {
      co_await share_parts_staged(run, static_cast<std::byte*>(parts[run.local()].data), parts, step);
    }
  }
  step += steps_through_slots(run, run.bytes());
  run.reach(step);
  co_await run.all_reached(step);
}

// All ranks in one binomial tree, wherever they are.
Task broadcast_flat(OpContext& run) {
  int ranks = run.size();
  int position = (run.rank() - run.op.root + ranks) % ranks;
  auto rank_at = [&](int p) { return (p + run.op.root) % ranks; };
  std::byte* mine = buffer(run);
  co_await run.may_enter();
  run.announce({}, {});
  int bit = 1;
  if (position != 0) {
    while (bit * 2 <= position) bit *= 2;
    Transfer incoming = run.transfer(rank_at(position - bit), 1, mine, run.bytes());
    run.post_receive(incoming);
    co_await run.done(incoming);
    bit *= 2;
  }
  std::vector<Transfer> outgoing;
  outgoing.reserve(32);
  for (; position + bit < ranks; bit *= 2) {
    outgoing.push_back(run.transfer(rank_at(position + bit), 1, mine, run.bytes()));
    run.post_send(outgoing.back());
  }
  for (Transfer& transfer : outgoing) co_await run.done(transfer);
}

}  // namespace

Task broadcast(OpContext& run) {
  const Topology& topology = run.topology();
  int root = topology.local[run.op.root];
  bool small = run.bytes() <= kInlineBytes;
  Algorithm algorithm = run.comm.choices.of(OpKind::broadcast, run.bytes());
  bool flat = algorithm == Algorithm::flat || algorithm == Algorithm::ring;
  if (!topology.one_host() && algorithm == Algorithm::automatic) flat = small;
  bool shares_memory = topology.one_host() && topology.size() > 1 && !flat && !small;
  if (!shares_memory) copy_on_root(run);
  if (topology.size() == 1) return nothing_to_do();
  if (flat) return broadcast_flat(run);
  if (!topology.one_host()) return broadcast_lanes(run);
  return small ? broadcast_inline(run, root) : broadcast_in_host(run, root);
}

}  // namespace trireme::ccl
