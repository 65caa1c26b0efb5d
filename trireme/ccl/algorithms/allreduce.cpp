#include "trireme/ccl/algorithms/allreduce.h"

#include <cstring>

#include "trireme/ccl/algorithms/choice.h"
#include "trireme/ccl/algorithms/phases.h"

namespace trireme::ccl {
namespace {

std::byte* output(OpContext& run) { return static_cast<std::byte*>(run.op.recv_buffer); }
const std::byte* input(OpContext& run) { return static_cast<const std::byte*>(run.op.send_buffer); }

void reduce_inline_payloads(OpContext& run, void* dst, Stage stage) {
  std::vector<const void*> sources(static_cast<size_t>(run.local_size()));
  for (int peer = 0; peer < run.local_size(); ++peer) sources[peer] = run.payload_of(peer, run.bytes());
  run.reducer().reduce(sources, dst, run.op.count, stage);
}

}  // namespace

Task allreduce(OpContext& run) {
  const Topology& topology = run.topology();
  if (topology.size() == 1) return reduce_alone(run, run.op.count);
  if (run.comm.choices.of(OpKind::allreduce, run.bytes()) == Algorithm::ring) return allreduce_ring(run);
  return run.bytes() > kInlineBytes ? allreduce_hierarchical(run) : allreduce_leaders(run);
}

// Two ranks: everybody gets all of the other's input.
Task allreduce_whole_staged(OpContext& run) {
  Reducer reducer = run.reducer();
  size_t total = run.bytes();
  int peer = 1 - run.local();
  Access access = access_to_slots(run, run.op.send_buffer, run.op.recv_buffer);
  co_await through_slots(
      run, -1, total, 1, Flow::exchange, kFirstChunk, Last::yes,
      [&](std::byte* slot, size_t offset, size_t room) { copy_to_slot(run, slot, input(run) + offset, std::min(room, total - offset)); },
      [&](auto slot_of, size_t offset, size_t room) {
        const void* sources[2];
        sources[run.local()] = input(run) + offset;
        sources[peer] = slot_of(peer);
        reducer.reduce(sources, output(run) + offset, std::min(room, total - offset) / run.element_bytes(), Stage::whole, access);
      });
}

Task allreduce_hierarchical(OpContext& run) {
  co_await run.may_enter();
  run.announce({const_cast<void*>(run.op.send_buffer), run.bytes()}, {run.op.recv_buffer, run.bytes()});
  co_await run.all_reached(kEntered);
  run.check_records();
  co_await allreduce_announced(run);
}

Task allreduce_announced(OpContext& run) {
  const Topology& topology = run.topology();
  bool direct = run.all_reachable();
  if (topology.one_host()) {
    direct = run.begin_way() == Way::direct;
    if (direct) {
      reduce_and_hand_out(run, run.reducer(), part_of(run.op.count, run.element_bytes(), run.size(), run.rank()));
      run.reach(kDone);
      co_await run.all_reached(kDone);
    } else if (run.size() == 2) {
      co_await allreduce_whole_staged(run);
    }
    if (direct || run.size() == 2) {
      run.end_way();
      co_return;
    }
  }

  Reducer reducer = run.reducer();
  size_t element = run.element_bytes();
  std::vector<Range> parts;
  for (int peer = 0; peer < run.local_size(); ++peer) {
    parts.push_back(peer < topology.lanes ? part_of(run.op.count, element, topology.lanes, peer) : Range{});
  }
  Range mine = parts[run.local()];

  // 1. My part, summed over the ranks of this host. Between hosts it travels as accumulated, rounded only at the end; where every host has
  // one rank there is nothing to accumulate yet.
  bool accumulate = !topology.one_host() && topology.size() != topology.host_count();
  std::byte* partial = output(run) + mine.begin * element;
  Stage stage = Stage::whole;
  if (accumulate) {
    partial = run.comm.scratch.partial(mine.count() * reducer.accumulator_bytes());
    stage = Stage::first;
  }
  uint64_t next_step = kFirstChunk;
  if (!topology.one_host() && !accumulate) {
    partial = static_cast<std::byte*>(const_cast<void*>(run.op.send_buffer));
  } else if (direct) {
    reduce_range_directly(run, reducer, mine, partial, stage);
  } else {
    co_await reduce_ranges_staged(run, reducer, parts, partial, stage, next_step);
    next_step += steps_through_slots(run, parts[0].count() * element + kCacheLine, parts.size());
  }
  run.reach(direct ? kReduced : next_step);

  // 2. Over the hosts.
  if (!topology.one_host() && run.local() < topology.lanes) {
    co_await reduce_lane(run, reducer, run.local(), mine.count(), partial, accumulate, output(run) + mine.begin * element);
  }

  // 3. Everybody's part to everybody in the host.
  if (!direct) {
    co_await run.all_reached(next_step);
    std::vector<Block> blocks;
    for (const Range& part : parts) blocks.push_back({output(run) + part.begin * element, part.count() * element});
    co_await share_parts_staged(run, output(run) + mine.begin * element, blocks, next_step, Last::yes);
    run.end_way();
    co_return;
  }
  run.reach(kPartReady);
  // In place, the parts that are overwritten now are others' inputs.
  if (run.any_in_place()) co_await run.all_reached(kReduced);
  for (int step = 1; step < run.local_size(); ++step) {
    int owner = (run.local() + step) % run.local_size();
    if (parts[owner].count() == 0) continue;
    co_await run.reached(owner, kPartReady);
    copy_range_from(run, owner, parts[owner]);
  }
  run.reach(kDone);
  co_await run.all_reached(kDone);
}

Task allreduce_leaders(OpContext& run) {
  const Topology& topology = run.topology();
  Reducer reducer = run.reducer();
  size_t hosts = static_cast<size_t>(topology.host_count());
  co_await run.may_enter();
  run.announce_inline(run.op.send_buffer, run.bytes());
  // The result lies in the first rank's staging memory; two places in turn, as for records.
  std::byte* result = run.node().segment().staging(0) + (run.number & 1) * kInlineBytes;
  if (run.local() == 0) {
    co_await run.all_reached(kEntered);
    run.check_records();
    size_t wire = run.op.count * reducer.accumulator_bytes();
    std::vector<std::byte> partials(hosts * wire + 1);
    auto partial_of = [&](int host) { return partials.data() + static_cast<size_t>(host) * wire; };
    std::byte* mine = partial_of(topology.my_host());
    if (run.op.count != 0) reduce_inline_payloads(run, mine, Stage::first);
    std::vector<Transfer> transfers;
    transfers.reserve(2 * hosts);
    for (int step = 1; step < topology.host_count(); ++step) {
      int host = (topology.my_host() + step) % topology.host_count();
      transfers.push_back(run.transfer(topology.lane_rank(host, 0), 1, partial_of(host), wire));
      run.post_receive(transfers.back());
      transfers.push_back(run.transfer(topology.lane_rank(host, 0), 1, mine, wire));
      run.post_send(transfers.back());
    }
    for (Transfer& transfer : transfers) co_await run.done(transfer);
    std::vector<const void*> sources;
    for (int host = 0; host < topology.host_count(); ++host) sources.push_back(partial_of(host));
    if (run.op.count != 0) reducer.reduce(sources, result, run.op.count, Stage::last);
    run.reach(kPartReady);
  } else {
    co_await run.reached(0, kPartReady);
    run.check_record(0);
  }
  if (run.op.count != 0) std::memcpy(run.op.recv_buffer, result, run.bytes());
}

Task allreduce_ring(OpContext& run) {
  int ranks = run.size();
  size_t element = run.element_bytes();
  Reducer reducer = run.reducer();
  size_t wire = reducer.accumulator_bytes();
  co_await run.may_enter();
  run.announce({}, {});
  std::vector<std::byte> sums(run.op.count * wire + 1);
  const void* mine = run.op.send_buffer;
  if (run.op.count != 0) reducer.reduce({&mine, 1}, sums.data(), run.op.count, Stage::first);
  auto range_of = [&](int index) { return part_of(run.op.count, element, ranks, (index % ranks + ranks) % ranks); };
  size_t largest = 0;
  for (int i = 0; i < ranks; ++i) largest = std::max(largest, range_of(i).count());
  std::vector<std::byte> incoming(largest * wire + 1);
  int next = (run.rank() + 1) % ranks, previous = (run.rank() + ranks - 1) % ranks;

  // Reduce-scatter: in step s the sum of part (rank - s - 1) so far comes from the rank before, gets mine added, and goes on.
  for (int step = 0; step < ranks - 1; ++step) {
    Range out = range_of(run.rank() - step), in = range_of(run.rank() - step - 1);
    Transfer receive = run.transfer(previous, static_cast<uint32_t>(step), incoming.data(), in.count() * wire);
    Transfer send = run.transfer(next, static_cast<uint32_t>(step), sums.data() + out.begin * wire, out.count() * wire);
    run.post_receive(receive);
    run.post_send(send);
    co_await run.done(receive);
    const void* sources[2] = {incoming.data(), sums.data() + in.begin * wire};
    if (in.count() != 0) reducer.reduce(sources, sums.data() + in.begin * wire, in.count(), Stage::middle);
    co_await run.done(send);
  }
  Range own = range_of(run.rank() + 1);
  auto result = [&](Range range) { return output(run) + range.begin * element; };
  const void* finished = sums.data() + own.begin * wire;
  if (own.count() != 0) reducer.reduce({&finished, 1}, result(own), own.count(), Stage::last);
  // Allgather: finished parts go round once.
  for (int step = 0; step < ranks - 1; ++step) {
    Range out = range_of(run.rank() + 1 - step), in = range_of(run.rank() - step);
    auto tag = static_cast<uint32_t>(ranks + step);
    Transfer receive = run.transfer(previous, tag, result(in), in.count() * element);
    Transfer send = run.transfer(next, tag, result(out), out.count() * element);
    run.post_receive(receive);
    run.post_send(send);
    co_await run.done(receive);
    co_await run.done(send);
  }
}

}  // namespace trireme::ccl
