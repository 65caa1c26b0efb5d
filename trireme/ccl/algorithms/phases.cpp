#include "trireme/ccl/algorithms/phases.h"

#include <algorithm>
#include <cstring>

#include "trireme/ccl/algorithms/copy.h"

namespace trireme::ccl {

Task reduce_alone(OpContext& run, size_t count) {
  const void* mine = run.op.send_buffer;
  if (count != 0) run.reducer().reduce({&mine, 1}, run.op.recv_buffer, count);
  co_return;
}

// ---- directly

void reduce_range_directly(OpContext& run, const Reducer& reducer, Range range, std::byte* dst, Stage stage) {
  size_t ranks = static_cast<size_t>(run.local_size());
  size_t element = run.element_bytes();
  size_t out_element = stage == Stage::whole ? element : reducer.accumulator_bytes();
  // All sources of one step should lie in the second-level cache together.
  size_t tile_bytes = std::max<size_t>(16 * 1024, std::min(Scratch::kTileBytes, 4 * Scratch::kTileBytes / ranks));
  std::byte* tiles = run.comm.scratch.tiles(ranks, tile_bytes);
  size_t step = tile_bytes / element;
  Access access = range.count() * out_element >= kStreamingBytes ? Access::streaming : Access::cached;
  std::vector<const void*> sources(ranks);
  for (size_t begin = range.begin; begin < range.end; begin += step) {
    size_t count = std::min(step, range.end - begin);
    for (int peer = 0; peer < run.local_size(); ++peer) {
      sources[peer] = peer == run.local()
                          ? static_cast<const std::byte*>(run.op.send_buffer) + begin * element
                          : run.memory().fetch(peer, run.record(peer).send, begin * element, count * element, tiles + peer * tile_bytes);
    }
    reducer.reduce(sources, dst + (begin - range.begin) * out_element, count, stage, access);
  }
}

void reduce_and_hand_out(OpContext& run, const Reducer& reducer, Range mine) {
  size_t ranks = static_cast<size_t>(run.local_size());
  size_t element = run.element_bytes();
  // All of a step's tiles should lie in the second-level cache together; mapped peers need none, and gain from the first level.
  bool mapped = run.any_mapped();
  size_t tile_bytes = mapped ? 32 * 1024 : std::clamp<size_t>(512 * 1024 / ranks, 16 * 1024, 256 * 1024);
  std::byte* tiles = run.comm.scratch.tiles(ranks, tile_bytes);
  size_t step = tile_bytes / element;
  auto input = static_cast<const std::byte*>(run.op.send_buffer);
  auto output = static_cast<std::byte*>(run.op.recv_buffer);
  // Results far beyond the caches that were not read before: they are made in a tile, and go around the caches to wherever they are mapped.
  bool around = mapped && input != output && run.bytes() >= kFarBeyondCaches;
  int last = (run.local() + run.local_size() - 1) % run.local_size();
  std::vector<const void*> sources(ranks);
  for (size_t begin = mine.begin; begin < mine.end; begin += step) {
    size_t count = std::min(step, mine.end - begin);
    size_t offset = begin * element, bytes = count * element;
    for (int peer = 0; peer < run.local_size(); ++peer) {
      if (peer == run.local()) {
        sources[peer] = input + offset;
        continue;
      }
      // Out of place the result's own memory serves as one of the tiles: it is needed in the cache anyway.
      std::byte* tile = peer == last && input != output ? output + offset : tiles + static_cast<size_t>(peer) * tile_bytes;
      sources[peer] = run.memory().fetch(peer, run.record(peer).send, offset, bytes, tile);
    }
    std::byte* result = around ? tiles + static_cast<size_t>(run.local()) * tile_bytes : output + offset;
    reducer.reduce(sources, result, count);
    if (around) copy_own(output + offset, result, bytes, run.bytes());
    for (int distance = 1; distance < run.local_size(); ++distance) {
      int peer = (run.local() + distance) % run.local_size();
      const View& theirs = run.record(peer).recv;
      std::byte* there = around ? run.memory().map(peer, theirs, offset) : nullptr;
      if (there) run.node().write_to_peers([&] { copy_own(there, result, bytes, run.bytes()); });
      else run.write(peer, theirs, offset, result, bytes);
    }
  }
}

void copy_range_from(OpContext& run, int local_peer, Range range) {
  size_t element = run.element_bytes();
  run.memory().read(local_peer, run.record(local_peer).recv, range.begin * element,
                    static_cast<std::byte*>(run.op.recv_buffer) + range.begin * element, range.count() * element);
}

// ---- staged

// A slot holds one piece of each range; an owner's own stays where it is.
Task reduce_ranges_staged(OpContext& run, const Reducer& reducer, const std::vector<Range>& ranges, std::byte* dst, Stage stage,
                          uint64_t first, Last last) {
  size_t element = run.element_bytes();
  size_t out_element = stage == Stage::whole ? element : reducer.accumulator_bytes();
  size_t largest = 0;
  for (const Range& range : ranges) largest = std::max(largest, range.count() * element);
  auto input = static_cast<const std::byte*>(run.op.send_buffer);
  auto mine = static_cast<size_t>(run.local());
  auto bytes_of = [&](const Range& range, size_t offset, size_t room) {
    size_t bytes = range.count() * element;
    return offset < bytes ? std::min(room, bytes - offset) : 0;
  };
  Access access = stage == Stage::whole ? access_to_slots(run, input + ranges[mine].begin * element, dst) : Access::cached;
  std::vector<const void*> sources(static_cast<size_t>(run.local_size()));
  co_await through_slots(
      run, -1, largest, ranges.size(), Flow::exchange, first, last,
      [&](std::byte* slot, size_t offset, size_t room) {
        for (size_t owner = 0; owner < ranges.size(); ++owner) {
          if (owner != mine) copy_to_slot(run, slot + owner * room, input + ranges[owner].begin * element + offset, bytes_of(ranges[owner], offset, room));
        }
      },
      [&](auto slot_of, size_t offset, size_t room) {
        size_t bytes = bytes_of(ranges[mine], offset, room);
        if (bytes == 0) return;
        for (int peer = 0; peer < run.local_size(); ++peer) {
          sources[peer] = peer == run.local() ? input + ranges[mine].begin * element + offset : slot_of(peer) + mine * room;
        }
        reducer.reduce(sources, dst + offset / element * out_element, bytes / element, stage, access);
      });
}

Task share_parts_staged(OpContext& run, const std::byte* mine, const std::vector<Block>& parts, uint64_t first, Last last) {
  size_t largest = 0, total = 0;
  for (const Block& part : parts) {
    largest = std::max(largest, part.bytes);
    total += part.bytes;
  }
  auto bytes_of = [](const Block& part, size_t offset, size_t room) { return offset < part.bytes ? std::min(room, part.bytes - offset) : 0; };
  auto place = [](const Block& part, size_t offset) { return static_cast<std::byte*>(part.data) + offset; };
  co_await through_slots(
      run, -1, largest, 1, total == largest ? Flow::one_way : Flow::exchange, first, last,
      [&](std::byte* slot, size_t offset, size_t room) {
        const Block& own = parts[run.local()];
        size_t bytes = bytes_of(own, offset, room);
        if (bytes != 0) copy_to_slot_and_result(run, slot, place(own, offset), mine + offset, bytes);
      },
      [&](auto slot_of, size_t offset, size_t room) {
        for (int owner = 0; owner < run.local_size(); ++owner) {
          size_t bytes = bytes_of(parts[owner], offset, room);
          if (owner != run.local() && bytes != 0) copy_result(run, place(parts[owner], offset), slot_of(owner), bytes);
        }
      });
}

// ---- with every rank

Task exchange_with_all(OpContext& run, const std::vector<Block>& outgoing, const std::vector<Block>& incoming) {
  std::vector<Transfer> transfers;
  transfers.reserve(static_cast<size_t>(2 * run.size()));
  for (int step = 1; step < run.size(); ++step) {
    int from = (run.rank() + run.size() - step) % run.size(), to = (run.rank() + step) % run.size();
    transfers.push_back(run.transfer(from, 1, incoming[from].data, incoming[from].bytes));
    run.post_receive(transfers.back());
    transfers.push_back(run.transfer(to, 1, outgoing[to].data, outgoing[to].bytes));
    run.post_send(transfers.back());
  }
  for (Transfer& transfer : transfers) co_await run.done(transfer);
}

// ---- between hosts

Task reduce_lane(OpContext& run, const Reducer& reducer, int lane, size_t count, const std::byte* partial, bool accumulated,
                 std::byte* result) {
  const Topology& topology = run.topology();
  int hosts = topology.host_count();
  int me = topology.my_host();
  size_t element = run.element_bytes();
  size_t wire = accumulated ? reducer.accumulator_bytes() : element;
  std::vector<Range> shares;
  for (int host = 0; host < hosts; ++host) shares.push_back(part_of(count, element, hosts, host));
  size_t mine = shares[me].count();

  std::vector<std::byte> incoming(mine * wire * static_cast<size_t>(hosts));
  std::vector<Transfer> transfers;
  transfers.reserve(static_cast<size_t>(4 * hosts));
  auto post = [&](Transfer transfer, bool send) {
    transfers.push_back(transfer);
    if (send) run.post_send(transfers.back());
    else run.post_receive(transfers.back());
  };
  for (int host = 0; host < hosts; ++host) {
    if (host != me) post(run.transfer(topology.lane_rank(host, lane), 1, incoming.data() + static_cast<size_t>(host) * mine * wire, mine * wire), false);
  }
  for (int step = 1; step < hosts; ++step) {
    int host = (me + step) % hosts;
    auto data = const_cast<std::byte*>(partial) + shares[host].begin * wire;
    post(run.transfer(topology.lane_rank(host, lane), 1, data, shares[host].count() * wire), true);
  }
  // The finished shares may come as soon as others are done.
  for (int host = 0; host < hosts; ++host) {
    if (host == me) continue;
    post(run.transfer(topology.lane_rank(host, lane), 2, result + shares[host].begin * element, shares[host].count() * element), false);
  }
  size_t first_finished = static_cast<size_t>(2 * (hosts - 1));
  for (size_t i = 0; i < first_finished; ++i) co_await run.done(transfers[i]);

  std::vector<const void*> sources(static_cast<size_t>(hosts));
  for (int host = 0; host < hosts; ++host) {
    sources[host] = host == me ? partial + shares[me].begin * wire : incoming.data() + static_cast<size_t>(host) * mine * wire;
  }
  std::byte* my_share = result + shares[me].begin * element;
  if (mine != 0) reducer.reduce(sources, my_share, mine, accumulated ? Stage::last : Stage::whole);
  for (int step = 1; step < hosts; ++step) {
    post(run.transfer(topology.lane_rank((me + step) % hosts, lane), 2, my_share, mine * element), true);
  }
  for (size_t i = first_finished; i < transfers.size(); ++i) co_await run.done(transfers[i]);
}

// The host at tree position p (root: 0) receives from p without its highest bit and sends to p + 2^k for every 2^k above it.
Task broadcast_lane(OpContext& run, int lane, int root_host, std::byte* data, size_t bytes) {
  const Topology& topology = run.topology();
  int hosts = topology.host_count();
  int position = (topology.my_host() - root_host + hosts) % hosts;
  auto rank_at = [&](int p) { return topology.lane_rank((p + root_host) % hosts, lane); };
  int first_child_bit = 1;
  if (position != 0) {
    int parent_bit = 1;
    while (parent_bit * 2 <= position) parent_bit *= 2;
    first_child_bit = parent_bit * 2;
    Transfer incoming = run.transfer(rank_at(position - parent_bit), 3, data, bytes);
    run.post_receive(incoming);
    co_await run.done(incoming);
  }
  std::vector<Transfer> outgoing;
  outgoing.reserve(32);
  for (int bit = first_child_bit; position + bit < hosts; bit *= 2) {
    outgoing.push_back(run.transfer(rank_at(position + bit), 3, data, bytes));
    run.post_send(outgoing.back());
  }
  for (Transfer& transfer : outgoing) co_await run.done(transfer);
}

}  // namespace trireme::ccl
