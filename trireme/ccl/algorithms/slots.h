// Through slots in shared memory: every rank of a host writes what others want of it into its slots, chunk by chunk, and takes what it wants out of theirs.
//
// A rank writes chunk k, announces it, and then takes chunk k - 1 of the others. So before it writes chunk k it has taken chunk k - 2, which the others had
// announced; whoever announces chunk k - 2 has taken chunk k - 4. With four slots nobody ever waits for one: what chunk k overwrites has been read.
#pragma once

#include <cstring>

#include "trireme/ccl/algorithms/copy.h"
#include "trireme/ccl/algorithms/op_context.h"

namespace trireme::ccl {

inline constexpr size_t kSlots = 4;

// What a slot has room for, if `parts` streams share it.
inline size_t slot_bytes(OpContext& run, size_t parts = 1) {
  return run.node().segment().staging_bytes() / kSlots / parts / kCacheLine * kCacheLine;
}

// How many steps a transfer takes: it announces first + 1 to first + steps.
inline uint64_t steps_through_slots(OpContext& run, size_t longest_bytes, size_t parts = 1) {
  const size_t chunk = slot_bytes(run, parts);
  return (longest_bytes + chunk - 1) / chunk + 1;
}

inline void copy_to_slot(OpContext& run, std::byte* slot, const std::byte* from, size_t bytes) {
  if (run.way() == Way::around) copy_around_caches(slot, from, bytes);
  else std::memcpy(slot, from, bytes);
}

// fill(slot, offset, room) writes what lies at `offset` of this rank's streams, up to `room` bytes of each, into its slot; take(slot_of, offset, room) reads
// the others', slot_of(r) being local rank r's. All partners (`peer`, or every local rank for -1) call this with the same `longest_bytes`. When it ends
// everybody has taken everything.
template <class Fill, class Take>
Task through_slots(OpContext& run, int peer, size_t longest_bytes, size_t parts, uint64_t first, Fill fill, Take take) {
  const Segment& segment = run.node().segment();
  const size_t bytes = slot_bytes(run), room = slot_bytes(run, parts);
  const size_t chunks = (longest_bytes + room - 1) / room;
  // Each operation begins in another slot: lines that were used a while ago change hands twice as fast as those just read.
  auto slot = [&](int rank, size_t chunk) { return segment.staging(rank) + (run.number + chunk) % kSlots * bytes; };
  auto partners = [&](uint64_t step) { return peer < 0 ? run.all_reached(step) : run.reached(peer, step); };
  for (size_t chunk = 0; chunk <= chunks; ++chunk) {
    if (chunk < chunks) {
      fill(slot(run.local(), chunk), chunk * room, room);
      run.reach(first + chunk + 1);
    }
    if (chunk == 0) continue;
    co_await partners(first + chunk);
    take([&](int rank) -> const std::byte* { return slot(rank, chunk - 1); }, (chunk - 1) * room, room);
  }
  run.reach(first + chunks + 1);
  co_await partners(first + chunks + 1);
}

}  // namespace trireme::ccl
