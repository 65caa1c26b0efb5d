#include "trireme/ccl/algorithms/op_context.h"

#include <cstring>
#include <numeric>

#include "trireme/base/error.h"
#include "trireme/ccl/algorithms/slots.h"

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

// Some operations end on some ranks before all have come (a small broadcast on its root): those ranks compare afterwards, when they enter the
// next one. Then all have come, and no record can be reused before this rank has entered.
void OpContext::check_previous() {
  const Segment& segment = node().segment();
  const Record& mine = segment.record(local(), number - 1);
  for (int peer = 0; peer < local_size(); ++peer) {
    const Record& theirs = segment.record(peer, number - 1);
    bool both = mine.number.load(std::memory_order_acquire) == number - 1 && theirs.number.load(std::memory_order_acquire) == number - 1;
    if (both && theirs.signature != mine.signature) {
      throw_mismatch(number - 1, rank(), mine.signature, node().global_rank(peer), theirs.signature);
    }
  }
}

Record& OpContext::begin_record() {
  if (comm.compared + 1 < number) check_previous();
  comm.compared = number - 1;
  Record& record = node().segment().record(local(), number);
  record.signature = signature;
  return record;
}

void OpContext::show(Record& record) {
  record.number.store(number, std::memory_order_release);
  node().show(value(kEntered));
}

const std::byte* OpContext::payload_of(int local_peer, size_t payload_bytes) {
  return payload_bytes <= kTinyBytes ? record(local_peer).tiny : node().segment().inline_slot(local_peer, number);
}

bool OpContext::all_entered_now(bool also_gone) {
  const Segment& segment = node().segment();
  for (; entered_cursor_ < local_size(); ++entered_cursor_) {
    if (segment.record(entered_cursor_, number).number.load(std::memory_order_acquire) == number) continue;
    if (!also_gone || node().progress_of(entered_cursor_) < value(kEntered)) return false;
  }
  comm.all_entered = number;
  return true;
}

void OpContext::show_inline(const void* payload, size_t payload_bytes) {
  Record& record = begin_record();
  if (payload_bytes > kTinyBytes) record.manner = {static_cast<uint32_t>(Placement::apart), 1, 1, 0, 0};
  if (payload_bytes == 8) std::memcpy(record.tiny, payload, 8);  // without a call
  else if (payload_bytes != 0) std::memcpy(const_cast<std::byte*>(payload_of(local(), payload_bytes)), payload, payload_bytes);
  show(record);
}

namespace {

// Blocks that lie end to end are one buffer.
void saw_blocks(RecurringBuffers& recurring, const std::vector<Block>& blocks) {
  Block buffer;
  for (const Block& block : blocks) {
    if (block.bytes == 0) continue;
    if (static_cast<std::byte*>(buffer.data) + buffer.bytes == block.data) {
      buffer.bytes += block.bytes;
    } else {
      recurring.saw(buffer.data, buffer.bytes);
      buffer = block;
    }
  }
  recurring.saw(buffer.data, buffer.bytes);
}

}  // namespace

void OpContext::note_buffers() {
  if (size() == 1) return;
  // Where a buffer has no part in an operation, what the program passed may be anything.
  size_t sent = op.kind == OpKind::broadcast && rank() != op.root ? 0 : bytes();
  size_t received = op.kind == OpKind::reduce && rank() != op.root ? 0 : bytes();
  if (op.kind == OpKind::reduce_scatter) {
    sent = std::accumulate(op.recv_counts.begin(), op.recv_counts.end(), size_t{0}) * element_bytes();
    received = op.recv_counts[static_cast<size_t>(rank())] * element_bytes();
  }
  comm.recurring.saw(op.send_buffer, sent);
  if (op.recv_buffer != op.send_buffer) comm.recurring.saw(op.recv_buffer, received);
  saw_blocks(comm.recurring, op.send_blocks);
  saw_blocks(comm.recurring, op.recv_blocks);
}

// All of the record but for the way.
Record& OpContext::describe_buffers(Block send, Block recv, const std::vector<Block>& blocks, Placement placement) {
  memory().unmap_freed();
  Record& record = begin_record();
  record.send = memory().view_of(send.data, send.bytes);
  record.recv = memory().view_of(recv.data, recv.bytes);
  bool mapped = record.send.region != 0 || record.recv.region != 0;
  way_bytes_ = std::max(send.bytes, recv.bytes);
  bool reachable = (send.bytes == 0 || memory().reachable(record.send)) && (recv.bytes == 0 || memory().reachable(record.recv));
  // The table of the blocks lies in this rank's inline slot, or, where it is too large for that, in private memory, which only direct reads
  // reach.
  View* table = reinterpret_cast<View*>(node().segment().inline_slot(local(), number));
  bool in_slot = blocks.size() * sizeof(View) <= kInlineBytes;
  if (!in_slot) {
    large_table().resize(blocks.size());
    table = large_table().data();
    reachable = reachable && memory().access() != PeerMemory::Access::regions_only;
  }
  for (size_t rank = 0; rank < blocks.size(); ++rank) {
    table[rank] = memory().view_of(blocks[rank].data, blocks[rank].bytes);
    reachable = reachable && (blocks[rank].bytes == 0 || memory().reachable(table[rank]));
    mapped = mapped || table[rank].region != 0;
    way_bytes_ = std::max(way_bytes_, blocks[rank].bytes);
  }
  way_ = unmeasured_way(way_bytes_);
  record.blocks = {in_slot ? 0 : reinterpret_cast<uint64_t>(table), blocks.size() * sizeof(View), 0, 0};
  mapped = mapped || memory().access() == PeerMemory::Access::same_process;
  record.manner = {static_cast<uint32_t>(placement), 0, reachable, mapped, static_cast<uint32_t>(way_)};
  return record;
}

void OpContext::announce(Block send, Block recv, const std::vector<Block>& blocks, Placement placement) {
  Record& record = describe_buffers(send, recv, blocks, placement);
  if (local() == 0 && topology().one_host()) {
    bool direct = memory().access() != PeerMemory::Access::regions_only && !(op.kind == OpKind::alltoall && placement == Placement::same);
    record.manner.way = static_cast<uint32_t>(comm.ways.choose(op.kind, placement != Placement::apart, way_bytes_, direct));
  }
  show(record);
  node().wake_sleepers();
}

// Large buffers that are mapped need no copy: their ranks only announce them, and all go on as if everybody had. Of small ones nobody needs to know
// where they lie.
void OpContext::show_early(Block send, Block recv, const std::vector<Block>& blocks, size_t slot_bytes) {
  const bool always_copied = slot_bytes <= kInlineBytes;
  const Placement placement = placement_of(send, recv);
  Record& record = always_copied ? begin_record() : describe_buffers(send, recv, blocks, placement);
  if (always_copied) record.manner = {static_cast<uint32_t>(placement), 1, 1, 0, 0};
  way_bytes_ = slot_bytes;
  way_ = local() == 0 ? comm.ways.choose(op.kind, placement != Placement::apart, slot_bytes, false) : comm.ways.told(op.kind, slot_bytes);
  record.manner.way = static_cast<uint32_t>(way_);
  if (!record.manner.mapped) {
    if (!std::exchange(comm.early_used, true)) node().segment().populate_early(local(), comm.recurring.wanted());
    const bool timed = local() == 0 && comm.ways.wants_time();
    auto now = [timed] { return timed ? std::chrono::steady_clock::now() : std::chrono::steady_clock::time_point(); };
    const auto began = now();
    copy_to_slot(*this, node().segment().early_slot(local(), number, slot_bytes), static_cast<const std::byte*>(send.data), send.bytes);
    comm.early_fill = now() - began;
    record.manner.inlined = 1;
  }
  show(record);
}

bool OpContext::begin_early(size_t slot_bytes) {
  way_bytes_ = slot_bytes;
  for (int peer = 0; peer < local_size(); ++peer) {
    if (!record(peer).manner.inlined) return false;
  }
  way_ = static_cast<Way>(record(0).manner.way);
  if (local() == 0 && comm.ways.wants_time()) way_began_ = std::chrono::steady_clock::now() - comm.early_fill;
  else if (local() != 0) comm.ways.tell(op.kind, slot_bytes, way_);
  return true;
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
  comm.all_entered = comm.compared = number;
}

bool OpContext::all_reachable() {
  for (int peer = 0; peer < local_size(); ++peer) {
    if (!record(peer).manner.reachable) return false;
  }
  return true;
}

bool OpContext::all_placed(Placement placement) {
  for (int peer = 0; peer < local_size(); ++peer) {
    if (record(peer).manner.placement != static_cast<uint32_t>(placement)) return false;
  }
  return true;
}

bool OpContext::any_mapped() {
  for (int peer = 0; peer < local_size(); ++peer) {
    if (record(peer).manner.mapped) return true;
  }
  return false;
}

// Plain pointers beat everything. What the first rank has chosen may not be possible with the others' buffers.
Way OpContext::begin_way(bool direct_is_legal) {
  bool direct = direct_is_legal && all_reachable();
  if (direct && any_mapped()) return way_ = Way::direct;
  way_ = static_cast<Way>(record(0).manner.way);
  if (way_ == Way::direct && !direct) return way_ = unmeasured_way(way_bytes_);
  if (local() == 0) way_began_ = std::chrono::steady_clock::now();
  return way_;
}

void OpContext::end_way() {
  if (!way_began_) return;
  bool in_place = record(0).manner.placement != static_cast<uint32_t>(Placement::apart);
  comm.ways.took(op.kind, in_place, way_bytes_, way_, std::chrono::steady_clock::now() - *way_began_);
}

View OpContext::block_view(int local_peer, int block) {
  const View& table = record(local_peer).blocks;
  if (table.address == 0) return reinterpret_cast<const View*>(node().segment().inline_slot(local_peer, number))[block];
  if (local_peer == local()) return large_table()[block];
  View view;
  memory().read(local_peer, table, static_cast<size_t>(block) * sizeof(View), &view, sizeof view);
  return view;
}

void OpContext::write(int local_peer, const View& view, size_t offset, const std::byte* data, size_t bytes) {
  constexpr size_t kPiece = 1 << 20;
  for (size_t done = 0; done < bytes; done += kPiece) {
    size_t piece = std::min(kPiece, bytes - done);
    node().write_to_peers([&] { memory().write(local_peer, view, offset + done, data + done, piece); });
  }
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
