#include "trireme/ccl/operation.h"

#include <limits>

#include "trireme/base/error.h"
#include "trireme/ccl/signature.h"

namespace trireme::ccl {
namespace {

constexpr std::string_view kKindNames[kOpKinds] = {"barrier",        "allreduce", "reduce",  "broadcast", "allgather", "alltoall",
                                                   "reduce_scatter", "gather",    "scatter", "send",      "recv"};

// Element counts whose bytes would not fit in half the address space are mistakes (a negative number cast to size_t).
constexpr size_t kMaxBytes = std::numeric_limits<size_t>::max() / 2;

struct Checker {
  const Operation& op;
  int rank;
  int size;

  [[noreturn]] void fail(const std::string& argument, const std::string& why) const {
    throw InvalidArgument(str("rank ", rank, ": ", name_of(op.kind), ": ", argument, " ", why));
  }
  void elements(const char* name, size_t count, size_t copies = 1) const {
    if (count > kMaxBytes / size_of(op.type) / copies) {
      fail(name, str("= ", count, " overflows: no memory is that large (was it negative?)"));
    }
  }
  void buffer(const char* name, const void* data, size_t bytes) const {
    if (data == nullptr && bytes != 0) fail(name, str("is null, but ", bytes, " bytes are to be moved"));
  }
  void root() const {
    if (op.root < 0 || op.root >= size) fail("root", str("= ", op.root, " is not a rank: they go from 0 to ", size - 1));
  }
  void blocks(const char* name, const std::vector<Block>& blocks) const {
    if (blocks.size() != static_cast<size_t>(size)) {
      fail(name, str("has ", blocks.size(), " entries, one for each of ", size, " ranks is needed"));
    }
    for (const Block& block : blocks) {
      if (block.bytes > kMaxBytes) fail(name, str("has a block of ", block.bytes, " bytes, which overflows"));
      buffer(name, block.data, block.bytes);
    }
  }
  void own_block(const char* name, const Block& block) const {
    if (block.bytes != op.count * size_of(op.type)) {
      fail(name, str("gives this rank ", block.bytes, " bytes, but it contributes ", op.count * size_of(op.type)));
    }
  }
};

void check_enums(const Operation& op, int rank) {
  if (static_cast<int>(op.kind) >= kOpKinds) throw InvalidArgument(str("rank ", rank, ": unknown operation ", static_cast<int>(op.kind)));
  if (static_cast<int>(op.type) >= kDataTypes) {
    throw InvalidArgument(str("rank ", rank, ": ", name_of(op.kind), ": unknown datatype ", static_cast<int>(op.type)));
  }
  if (static_cast<int>(op.reduction) >= kReductions) {
    throw InvalidArgument(str("rank ", rank, ": ", name_of(op.kind), ": unknown reduction ", static_cast<int>(op.reduction)));
  }
}

void check_reduce_scatter(const Checker& check) {
  const Operation& op = check.op;
  if (op.recv_counts.size() != static_cast<size_t>(check.size)) check.fail("recv_counts", "needs one entry per rank");
  size_t total = 0;
  for (size_t count : op.recv_counts) {
    check.elements("recv_counts", count, check.size);
    total += count;
  }
  check.elements("recv_counts", total);
  check.buffer("send_buffer", op.send_buffer, total * size_of(op.type));
  check.buffer("recv_buffer", op.recv_buffer, op.recv_counts[check.rank] * size_of(op.type));
}

void check_point_to_point(const Checker& check) {
  const Operation& op = check.op;
  bool any = op.kind == OpKind::recv && op.peer == kAnySource;
  if (!any && (op.peer < 0 || op.peer >= check.size)) {
    check.fail("peer", str("= ", op.peer, " is not a rank: they go from 0 to ", check.size - 1));
  }
  if (op.tag < (op.kind == OpKind::recv ? kAnyTag : 0)) check.fail("tag", str("= ", op.tag, " is negative"));
  check.buffer("buffer", op.kind == OpKind::send ? op.send_buffer : op.recv_buffer, op.count * size_of(op.type));
}

}  // namespace

std::string_view name_of(OpKind kind) { return kKindNames[static_cast<int>(kind)]; }

void validate(const Operation& op, int rank, int size) {
  check_enums(op, rank);
  Checker check{op, rank, size};
  check.elements("count", op.count);
  size_t bytes = op.count * size_of(op.type);
  switch (op.kind) {
    case OpKind::barrier:
      break;
    case OpKind::allreduce:
      check.buffer("send_buffer", op.send_buffer, bytes);
      check.buffer("recv_buffer", op.recv_buffer, bytes);
      break;
    case OpKind::reduce:
      check.root();
      check.buffer("send_buffer", op.send_buffer, bytes);
      if (rank == op.root) check.buffer("recv_buffer", op.recv_buffer, bytes);
      break;
    case OpKind::broadcast:
      check.root();
      if (rank == op.root) check.buffer("send_buffer", op.send_buffer, bytes);
      else check.buffer("recv_buffer", op.recv_buffer, bytes);
      break;
    case OpKind::allgather:
      check.buffer("send_buffer", op.send_buffer, bytes);
      check.blocks("recv_blocks", op.recv_blocks);
      check.own_block("recv_blocks", op.recv_blocks[rank]);
      break;
    case OpKind::alltoall:
      check.blocks("send_blocks", op.send_blocks);
      check.blocks("recv_blocks", op.recv_blocks);
      if (op.send_blocks[rank].bytes != op.recv_blocks[rank].bytes) {
        check.fail("recv_blocks", "and send_blocks differ in what this rank sends to itself");
      }
      break;
    case OpKind::reduce_scatter:
      check_reduce_scatter(check);
      break;
    case OpKind::gather:
      check.root();
      check.buffer("send_buffer", op.send_buffer, bytes);
      if (rank == op.root) {
        check.blocks("recv_blocks", op.recv_blocks);
        check.own_block("recv_blocks", op.recv_blocks[rank]);
      }
      break;
    case OpKind::scatter:
      check.root();
      check.buffer("recv_buffer", op.recv_buffer, bytes);
      if (rank == op.root) {
        check.blocks("send_blocks", op.send_blocks);
        check.own_block("send_blocks", op.send_blocks[rank]);
      }
      break;
    case OpKind::send:
    case OpKind::recv:
      check_point_to_point(check);
      break;
  }
}

std::string describe(const Operation& op) { return describe(signature_of(op)); }

}  // namespace trireme::ccl
