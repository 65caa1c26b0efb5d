#include "trireme/ccl/algorithms/op_context.h"

#include <cstring>

#include "trireme/base/error.h"

namespace trireme::ccl {

Range part_of(size_t count, size_t element_bytes, int parts, int index) {
  size_t unit = std::max<size_t>(1, kCacheLine / element_bytes);
  size_t units = (count + unit - 1) / unit;
  auto boundary = [&](size_t i) { return std::min(count, units * i / static_cast<size_t>(parts) * unit); };
  return {boundary(static_cast<size_t>(index)), boundary(static_cast<size_t>(index) + 1)};
}

std::byte* Scratch::Buffer::at_least(size_t wanted) {
  if (wanted > bytes) {
    memory.reset(new std::byte[wanted + kCacheLine]);
    auto address = reinterpret_cast<uintptr_t>(memory.get());
    aligned = memory.get() + (kCacheLine - address % kCacheLine);
    bytes = wanted;
  }
  return aligned;
}

std::byte* Scratch::tiles(size_t count, size_t bytes) { return tiles_.at_least(count * bytes); }
std::byte* Scratch::partial(size_t bytes) { return partial_.at_least(bytes); }

OpContext::OpContext(CommContext& communicator, const Operation& operation, uint64_t operation_number)
    : comm(communicator), op(operation), number(operation_number), signature(signature_of(operation)) {
  comm.messenger.set_current(number, signature);
}

Record& OpContext::begin_record() {
  Record& record = node().segment().record(local(), number);
  record.signature = signature;
  return record;
}

void OpContext::publish(Record& record) {
  record.number.store(number, std::memory_order_release);
  reach(kEntered);
}

const std::byte* OpContext::payload_of(int local_peer, size_t payload_bytes) {
  return payload_bytes <= kTinyBytes ? record(local_peer).tiny : node().segment().inline_slot(local_peer, number);
}

bool OpContext::all_entered_now() {
  const Segment& segment = node().segment();
  for (; entered_cursor_ < local_size(); ++entered_cursor_) {
    // A peer that is here shows its record; one that is gone, only its progress.
    if (segment.record(entered_cursor_, number).number.load(std::memory_order_acquire) == number) continue;
    if (node().progress_of(entered_cursor_) < value(kEntered)) return false;
  }
  comm.all_entered = number;
  return true;
}

void OpContext::announce_inline(const void* payload, size_t payload_bytes) {
  Record& record = begin_record();
  record.inlined = 1;
  record.reachable = 1;
  if (payload_bytes != 0) std::memcpy(const_cast<std::byte*>(payload_of(local(), payload_bytes)), payload, payload_bytes);
  publish(record);
}

void OpContext::announce(Block send, Block recv, const std::vector<Block>& blocks) {
  Record& record = begin_record();
  record.inlined = 0;
  record.send = memory().view_of(send.data, send.bytes);
  record.recv = memory().view_of(recv.data, recv.bytes);
  record.in_place = send.data == recv.data && send.bytes != 0;
  bool reachable = (send.bytes == 0 || memory().reachable(record.send)) && (recv.bytes == 0 || memory().reachable(record.recv));
  block_views().clear();
  for (const Block& block : blocks) {
    block_views().push_back(memory().view_of(block.data, block.bytes));
    reachable = reachable && (block.bytes == 0 || memory().reachable(block_views().back()));
  }
  // The array itself is private memory: only direct reads reach it.
  if (!blocks.empty()) reachable = reachable && memory().access() != PeerMemory::Access::regions_only;
  record.blocks = {reinterpret_cast<uint64_t>(block_views().data()), block_views().size() * sizeof(View), 0, 0};
  record.reachable = reachable;
  publish(record);
}

void OpContext::check_record(int local_peer) {
  const Record& theirs = record(local_peer);
  int peer = node().global_rank(local_peer);
  if (theirs.number.load(std::memory_order_acquire) != number) {
    throw PeerLost(peer, str("rank ", rank(), ": operation #", number, ": ", describe(signature), ": rank ", peer,
                             " has left the communicator and takes part in nothing more"));
  }
  if (theirs.signature != signature) throw_mismatch(number, rank(), signature, peer, theirs.signature);
}

void OpContext::check_records() {
  for (int peer = 0; peer < local_size(); ++peer) check_record(peer);
  comm.all_entered = number;
}

bool OpContext::all_reachable() {
  for (int peer = 0; peer < local_size(); ++peer) {
    if (!record(peer).reachable) return false;
  }
  return true;
}

bool OpContext::any_in_place() {
  for (int peer = 0; peer < local_size(); ++peer) {
    if (record(peer).in_place) return true;
  }
  return false;
}

bool OpContext::any_mapped() {
  if (memory().access() == PeerMemory::Access::same_process) return true;
  for (int peer = 0; peer < local_size(); ++peer) {
    if (record(peer).send.region != 0) return true;
  }
  return false;
}

View OpContext::block_view(int local_peer, int block) {
  if (local_peer == local()) return block_views()[block];
  View view;
  memory().read(local_peer, record(local_peer).blocks, static_cast<size_t>(block) * sizeof(View), &view, sizeof view);
  return view;
}

void OpContext::check_bytes(int local_peer, size_t theirs, size_t expected) const {
  if (theirs == expected) return;
  int peer = comm.node.global_rank(local_peer);
  throw Mismatch(str("rank ", rank(), ": operation #", number, ": ", describe(signature), ": rank ", peer, " sends ", theirs,
                     " bytes where this rank expects ", expected, ". The counts that the two ranks passed do not agree."));
}

Transfer OpContext::transfer(int peer, uint32_t step, void* data, size_t bytes) const {
  Transfer transfer;
  transfer.peer = peer;
  transfer.tag = collective_tag(number, step);
  transfer.data = static_cast<std::byte*>(data);
  transfer.bytes = bytes;
  transfer.signature = signature;
  transfer.number = number;
  return transfer;
}

}  // namespace trireme::ccl
