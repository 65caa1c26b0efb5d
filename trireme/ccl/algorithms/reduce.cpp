// Reduce and reduce_scatter.
#include <cstring>

#include "trireme/ccl/algorithms/allreduce.h"
#include "trireme/ccl/algorithms/choice.h"
#include "trireme/ccl/algorithms/phases.h"

namespace trireme::ccl {
namespace {

// Small, one host: the root reduces what lies in the records.
Task reduce_inline(OpContext& run, int root) {
  co_await run.may_enter();
  run.announce_inline(run.op.send_buffer, run.bytes());
  if (run.local() != root) co_return;
  co_await run.all_reached(kEntered);
  run.check_records();
  std::vector<const void*> sources;
  for (int peer = 0; peer < run.local_size(); ++peer) sources.push_back(run.payload_of(peer, run.bytes()));
  if (run.op.count != 0) run.reducer().reduce(sources, run.op.recv_buffer, run.op.count);
}

// One host: each rank reduces its part of all inputs, tile by tile, and writes it into the root's result.
Task reduce_direct(OpContext& run, int root) {
  Block result_block = run.local() == root ? Block{run.op.recv_buffer, run.bytes()} : Block{};
  co_await run.may_enter();
  run.announce({const_cast<void*>(run.op.send_buffer), run.bytes()}, result_block);
  co_await run.all_reached(kEntered);
  run.check_records();
  Reducer reducer = run.reducer();
  size_t element = run.element_bytes();
  Range mine = part_of(run.op.count, element, run.local_size(), run.local());
  if (run.local() == root) {
    reduce_range_directly(run, reducer, mine, static_cast<std::byte*>(run.op.recv_buffer) + mine.begin * element, Stage::whole);
  } else {
    std::byte* result = run.comm.scratch.partial(Scratch::kTileBytes);
    size_t step = Scratch::kTileBytes / element;
    for (size_t begin = mine.begin; begin < mine.end; begin += step) {
      Range tile{begin, std::min(begin + step, mine.end)};
      reduce_range_directly(run, reducer, tile, result, Stage::whole);
      run.write(root, run.record(root).recv, begin * element, result, tile.count() * element);
    }
  }
  run.reach(kDone);
  co_await run.all_reached(kDone);
}

// An allreduce whose result the others drop.
Task reduce_by_allreduce(OpContext& run, Algorithm algorithm) {
  Operation all = run.op;
  std::vector<std::byte> dropped;
  if (run.rank() != run.op.root) {
    dropped.resize(run.bytes() + 1);
    all.recv_buffer = dropped.data();
  }
  OpContext inner(run.comm, all, run.number);
  if (algorithm == Algorithm::ring) co_await allreduce_ring(inner);
  else if (run.bytes() > kInlineBytes) co_await allreduce_hierarchical(inner);
  else co_await allreduce_leaders(inner);
}

// Every rank sends every other its share of that one's result, wherever they are, and who gets a result adds the shares in rank order. Empty
// shares are sent as well: they tell ranks that disagree about the root.
Task reduce_flat(OpContext& run, std::vector<Range> results) {
  size_t element = run.element_bytes();
  auto input = static_cast<std::byte*>(const_cast<void*>(run.op.send_buffer));
  Range mine = results[run.rank()];
  size_t my_bytes = mine.count() * element;
  std::vector<std::byte> shares(my_bytes * static_cast<size_t>(run.size()) + 1);
  auto share_of = [&](int rank) { return shares.data() + static_cast<size_t>(rank) * my_bytes; };
  if (my_bytes != 0) std::memcpy(share_of(run.rank()), input + mine.begin * element, my_bytes);
  co_await run.may_enter();
  run.announce({}, {});
  std::vector<Block> outgoing, incoming;
  for (int rank = 0; rank < run.size(); ++rank) {
    outgoing.push_back({input + results[rank].begin * element, results[rank].count() * element});
    incoming.push_back({share_of(rank), my_bytes});
  }
  co_await exchange_with_all(run, outgoing, incoming);
  std::vector<const void*> sources;
  for (int rank = 0; rank < run.size(); ++rank) sources.push_back(share_of(rank));
  if (my_bytes != 0) run.reducer().reduce(sources, run.op.recv_buffer, mine.count());
}

}  // namespace

Task reduce(OpContext& run) {
  const Topology& topology = run.topology();
  int root = topology.local[run.op.root];
  Algorithm algorithm = run.comm.choices.of(OpKind::reduce, run.bytes());
  if (run.size() == 1) return reduce_alone(run, run.op.count);
  if (algorithm == Algorithm::flat) {
    std::vector<Range> results(static_cast<size_t>(run.size()));
    results[run.op.root] = {0, run.op.count};
    return reduce_flat(run, std::move(results));
  }
  if (algorithm == Algorithm::ring) return reduce_by_allreduce(run, algorithm);
  if (topology.one_host() && run.bytes() <= kInlineBytes) return reduce_inline(run, root);
  if (!topology.one_host() || run.memory().access() == PeerMemory::Access::regions_only) return reduce_by_allreduce(run, algorithm);
  return reduce_direct(run, root);
}

namespace {

std::vector<Range> ranges_of(OpContext& run) {
  std::vector<Range> ranges;
  size_t at = 0;
  for (size_t count : run.op.recv_counts) {
    ranges.push_back({at, at + count});
    at += count;
  }
  return ranges;
}

size_t total_bytes(OpContext& run) {
  size_t total = 0;
  for (size_t count : run.op.recv_counts) total += count;
  return total * run.element_bytes();
}

// The result may lie over inputs that others still read; then it is kept aside until all have read.
bool result_over_inputs(OpContext& run, Range mine) {
  auto send = static_cast<const std::byte*>(run.op.send_buffer);
  auto recv = static_cast<const std::byte*>(run.op.recv_buffer);
  size_t element = run.element_bytes();
  bool apart = recv + mine.count() * element <= send || recv >= send + total_bytes(run);
  return !apart && recv != send + mine.begin * element;
}

Task reduce_scatter_in_host(OpContext& run) {
  co_await run.may_enter();
  run.announce({const_cast<void*>(run.op.send_buffer), total_bytes(run)}, {});
  co_await run.all_reached(kEntered);
  run.check_records();
  co_await reduce_scatter_announced(run);
}

// Several hosts. The block of rank d is summed over each host by the rank of that host that stands where d stands in its own (modulo), sent to d,
// and summed there in host order. Each block crosses each wire once.
Task reduce_scatter_between_hosts(OpContext& run) {
  const Topology& topology = run.topology();
  std::vector<Range> ranges = ranges_of(run);
  Reducer reducer = run.reducer();
  size_t wire = reducer.accumulator_bytes();
  bool direct = false;
  co_await run.may_enter();
  run.announce({const_cast<void*>(run.op.send_buffer), total_bytes(run)}, {});
  co_await run.all_reached(kEntered);
  run.check_records();
  direct = run.all_reachable();

  // Partial sums of the blocks that this rank handles for its host, its own among them.
  std::vector<int> handled;
  std::vector<std::vector<std::byte>> partials;
  uint64_t step = kFirstChunk;
  for (int rank = 0; rank < run.size(); ++rank) {
    int handler = topology.local[rank] % run.local_size();
    bool mine = handler == run.local();
    if (mine) {
      handled.push_back(rank);
      partials.emplace_back(ranges[rank].count() * wire + 1);
    }
    if (direct) {
      if (mine) reduce_range_directly(run, reducer, ranges[rank], partials.back().data(), Stage::first);
      continue;
    }
    std::vector<Range> one(static_cast<size_t>(run.local_size()));
    one[handler] = ranges[rank];
    co_await reduce_ranges_staged(run, reducer, one, mine ? partials.back().data() : nullptr, Stage::first, step);
    step += steps_through_slots(run, ranges[rank].count() * run.element_bytes(), one.size());
  }
  run.reach(step);

  size_t my_wire = ranges[run.rank()].count() * wire;
  std::vector<std::byte> incoming(my_wire * static_cast<size_t>(topology.host_count()) + 1);
  std::vector<const void*> sources(static_cast<size_t>(topology.host_count()));
  std::vector<Transfer> transfers;
  transfers.reserve(handled.size() + sources.size());
  for (int host = 0; host < topology.host_count(); ++host) {
    std::byte* place = incoming.data() + static_cast<size_t>(host) * my_wire;
    sources[host] = place;
    if (host == topology.my_host()) continue;
    const auto& members = topology.members[host];
    transfers.push_back(run.transfer(members[static_cast<size_t>(run.local()) % members.size()], 1, place, my_wire));
    run.post_receive(transfers.back());
  }
  for (size_t i = 0; i < handled.size(); ++i) {
    size_t bytes = ranges[handled[i]].count() * wire;
    if (handled[i] == run.rank()) {
      sources[topology.my_host()] = partials[i].data();
    } else if (topology.hosts[handled[i]] != topology.my_host()) {
      transfers.push_back(run.transfer(handled[i], 1, partials[i].data(), bytes));
      run.post_send(transfers.back());
    }
  }
  for (Transfer& transfer : transfers) co_await run.done(transfer);
  co_await run.all_reached(step);  // nobody reads the inputs any more
  if (my_wire != 0) reducer.reduce(sources, run.op.recv_buffer, ranges[run.rank()].count(), Stage::last);
}

}  // namespace

Task reduce_scatter_announced(OpContext& run) {
  std::vector<Range> ranges = ranges_of(run);
  Range mine = ranges[run.rank()];
  Reducer reducer = run.reducer();
  bool aside = result_over_inputs(run, mine);
  size_t my_bytes = mine.count() * run.element_bytes();
  std::byte* result = aside ? run.comm.scratch.partial(my_bytes + 1) : static_cast<std::byte*>(run.op.recv_buffer);
  if (run.begin_way() == Way::direct) {
    reduce_range_directly(run, reducer, mine, result, Stage::whole);
    run.reach(kDone);
    co_await run.all_reached(kDone);
  } else {
    co_await reduce_ranges_staged(run, reducer, ranges, result, Stage::whole, kFirstChunk, Last::yes);
  }
  run.end_way();
  if (aside && my_bytes != 0) std::memcpy(run.op.recv_buffer, result, my_bytes);
}

Task reduce_scatter(OpContext& run) {
  if (run.size() == 1) return reduce_alone(run, run.op.recv_counts[0]);
  Algorithm algorithm = run.comm.choices.of(OpKind::reduce_scatter, total_bytes(run));
  if (algorithm == Algorithm::flat || algorithm == Algorithm::ring) return reduce_flat(run, ranges_of(run));
  return run.topology().one_host() ? reduce_scatter_in_host(run) : reduce_scatter_between_hosts(run);
}

}  // namespace trireme::ccl
