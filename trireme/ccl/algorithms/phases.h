// The phases from which the collectives are put together: inside a host directly (reading peers' memory) or staged (through
// slots in shared memory), and between hosts.
#pragma once

#include <vector>

#include "trireme/ccl/algorithms/op_context.h"
#include "trireme/ccl/algorithms/slots.h"

namespace trireme::ccl {

// Writing around the cache pays once a result is far larger than a core's share of it.
inline constexpr size_t kStreamingBytes = 16 << 20;

// A communicator of one rank: its own share is the result.
Task reduce_alone(OpContext& run, size_t count);

// ---- inside a host, directly. All ranks have announced their buffers and all are reachable.

// dst = the reduction of elements `range` of every local rank's send buffer, in rank order, tile by tile.
void reduce_range_directly(OpContext& run, const Reducer& reducer, Range range, std::byte* dst, Stage stage);
// Each tile of `mine`, reduced over all local ranks, goes into every rank's result while it is still in the cache. Nobody but its owner
// reads or writes a part of any buffer, so this is legal in place, and no rank waits for another between the first tile and the last.
void reduce_and_hand_out(OpContext& run, const Reducer& reducer, Range mine);
// Copies elements `range` out of a peer's receive buffer, to the same place in ours.
void copy_range_from(OpContext& run, int local_peer, Range range);

// ---- inside a host, staged: through slots in shared memory. They announce steps after `first`, as many as steps_through_slots() says.

// Each owner o gets dst = the reduction of ranges[o]; ranges has one entry per local rank, empty for ranks that own nothing.
Task reduce_ranges_staged(OpContext& run, const Reducer& reducer, const std::vector<Range>& ranges, std::byte* dst, Stage stage,
                          uint64_t first, Last last = Last::no);
// Every local rank o offers `mine` (on o) to all: it lands in parts[o].data of each. parts[o].bytes must agree on all ranks.
Task share_parts_staged(OpContext& run, const std::byte* mine, const std::vector<Block>& parts, uint64_t first, Last last = Last::no);

// ---- with every rank, by messages

// Sends outgoing[r] to rank r and receives incoming[r] from it, for every other rank.
Task exchange_with_all(OpContext& run, const std::vector<Block>& outgoing, const std::vector<Block>& incoming);

// ---- between hosts, one lane: the ranks lane_rank(h, lane) of every host h.

// Reduces the lane's part over all hosts, in host order, into `result`. `partial` holds this host's sum: in the accumulator type when
// `accumulated`, else as stored. Every host sends each of the others 1/H of it and then its finished share: 2 (H-1)/H of the bytes in 2 steps.
Task reduce_lane(OpContext& run, const Reducer& reducer, int lane, size_t count, const std::byte* partial, bool accumulated,
                 std::byte* result);
// Sends the lane's part from `root_host` down a binomial tree of hosts.
Task broadcast_lane(OpContext& run, int lane, int root_host, std::byte* data, size_t bytes);

}  // namespace trireme::ccl
