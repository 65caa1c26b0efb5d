// Through slots in shared memory: every rank of a host writes what others want of it into its slots, chunk by chunk, and takes what it wants out of theirs.
//
// A rank writes chunk k, announces it, and then takes chunk k - 1 of the others. So before it writes chunk k it has taken chunk k - 2, which the others had
// announced; whoever announces chunk k - 2 has taken chunk k - 4. With four slots or more nobody ever waits for one: what chunk k overwrites has been read.
#pragma once

#include <utility>

#include "trireme/ccl/algorithms/copy.h"
#include "trireme/ccl/algorithms/op_context.h"

namespace trireme::ccl {

// Whether all partners send, or one does, whom the others follow: then smaller chunks let them begin sooner.
enum class Flow { exchange, one_way };
// Whether it is the operation's last transfer.
enum class Last { no, yes };

// How a transfer is cut: how much of each of its `parts` streams, of which the longest is that long, lies in one slot. The slots of all the memory are used
// in turn: it is larger than a second-level cache, and lines that have left the other core's cache change hands twice as fast as those just read.
inline size_t room_in_slot(OpContext& run, size_t longest_bytes, size_t parts, Flow flow) {
  constexpr size_t kLeastSlots = 8, kLeastBytes = 32 * 1024;
  const size_t pieces = flow == Flow::one_way ? 8 : 4;
  const size_t wanted = std::max(kLeastBytes, (longest_bytes / pieces / kCacheLine + 1) * kCacheLine);
  return std::min(wanted, run.node().segment().staging_bytes() / kLeastSlots / parts / kCacheLine * kCacheLine);
}

inline uint64_t chunks_of(size_t bytes, size_t room) { return (bytes + room - 1) / room; }

// How many steps a transfer takes at most: it announces first + 1, and so on, but no more than first + steps. Never less for more bytes.
inline uint64_t steps_through_slots(OpContext& run, size_t longest_bytes, size_t parts = 1) {
  return chunks_of(longest_bytes, room_in_slot(run, longest_bytes, parts, Flow::one_way)) + 1;
}

inline void copy_to_slot(OpContext& run, std::byte* slot, const std::byte* from, size_t bytes) {
  if (run.way() == Way::around) copy_around_caches(slot, from, bytes);
  else copy_in_registers(slot, from, bytes);
}

// For a reduction out of slots into `result`, of which `input` is one of the sources. What is in the cache already is not sent around it.
inline Access access_to_slots(const OpContext& run, const void* input, const void* result) {
  if (run.results_around_caches(kFarBeyondCaches) && input != result) return Access::streaming;
  return run.way() == Way::around ? Access::interleaved : Access::cached;
}

// To where the caller wants it.
inline void copy_result(OpContext& run, void* to, const void* from, size_t bytes) {
  if (bytes == 0 || to == from) return;
  if (run.results_around_caches(2 * kCopyAroundCache)) copy_around_caches(to, from, bytes);
  else copy_in_registers(to, from, bytes);
}

// Both, of what the caller wants back as it is.
inline void copy_to_slot_and_result(OpContext& run, std::byte* slot, std::byte* result, const std::byte* from, size_t bytes) {
  if (result != from && run.way() == Way::slots) return copy_twice_in_registers(slot, result, from, bytes);
  copy_to_slot(run, slot, from, bytes);
  copy_result(run, result, from, bytes);
}

// fill(slot, offset, room) writes what lies at `offset` of this rank's streams, up to `room` bytes of each, into its slot; take(slot_of, offset, room) reads
// the others', slot_of(r) being local rank r's. All partners (`peer`, or every local rank for -1) call this with the same `longest_bytes`. Unless it is
// the operation's last transfer, everybody has taken everything when it ends; what comes after the last one waits until all have entered the next operation.
template <class Fill, class Take>
Task through_slots(OpContext& run, int peer, size_t longest_bytes, size_t parts, Flow flow, uint64_t first, Last last, Fill fill, Take take) {
  const Segment& segment = run.node().segment();
  if (!std::exchange(run.comm.slots_used, true)) segment.populate_staging(run.local(), run.comm.recurring.wanted());
  const size_t room = room_in_slot(run, longest_bytes, parts, flow), slots = segment.staging_bytes() / (room * parts);
  const uint64_t chunks = chunks_of(longest_bytes, room);
  auto slot = [&](int rank, uint64_t chunk) { return segment.staging(rank) + (run.number * chunks + chunk) % slots * room * parts; };
  auto partners = [&](uint64_t step) { return peer < 0 ? run.all_reached(step) : run.reached(peer, step); };
  for (uint64_t chunk = 0; chunk <= chunks; ++chunk) {
    if (chunk < chunks) {
      fill(slot(run.local(), chunk), chunk * room, room);
      run.reach(first + chunk + 1);
    }
    if (chunk == 0) continue;
    co_await partners(first + chunk);
    take([&](int rank) -> const std::byte* { return slot(rank, chunk - 1); }, (chunk - 1) * room, room);
  }
  if (last == Last::yes) co_return;
  run.reach(first + chunks + 1);
  co_await partners(first + chunks + 1);
}

}  // namespace trireme::ccl
