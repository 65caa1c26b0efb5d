#include "trireme/ccl/signature.h"

#include "trireme/base/error.h"
#include "trireme/base/fnv.h"

namespace trireme::ccl {
namespace {

bool reduces(OpKind kind) {
  return kind == OpKind::allreduce || kind == OpKind::reduce || kind == OpKind::reduce_scatter;
}

}  // namespace

Signature signature_of(const Operation& op) {
  Signature signature;
  signature.kind = static_cast<uint8_t>(op.kind);
  signature.type = static_cast<uint8_t>(op.type);
  signature.root = op.root;
  if (reduces(op.kind)) signature.reduction = static_cast<uint8_t>(op.reduction);
  Fnv counts;
  switch (op.kind) {
    case OpKind::reduce_scatter:
      for (size_t count : op.recv_counts) counts.mix(count);
      signature.counts_hash = counts.value();
      break;
    case OpKind::allgather:  // each rank contributes its own count, all know the whole list
      for (const Block& block : op.recv_blocks) counts.mix(block.bytes);
      signature.counts_hash = counts.value();
      break;
    case OpKind::alltoall:  // counts are pairwise, and only the root knows those of gather and scatter: checked at the data
    case OpKind::gather:
    case OpKind::scatter:
      break;
    default:
      signature.count = op.count;
  }
  if (op.stated) {
    signature.kind = static_cast<uint8_t>(op.stated->kind);
    signature.type = static_cast<uint8_t>(op.stated->type);
    signature.reduction = static_cast<uint8_t>(op.stated->reduction);
    signature.count = op.stated->count;
  }
  return signature;
}

std::string describe(const Signature& signature) {
  auto kind = static_cast<OpKind>(signature.kind);
  std::string text(name_of(kind));
  if (kind == OpKind::barrier) return text;
  text += signature.count != 0 ? str(" of ", signature.count, " ", name_of(static_cast<DataType>(signature.type)))
                               : str(" of ", name_of(static_cast<DataType>(signature.type)));
  if (reduces(kind)) text += str(" (", name_of(static_cast<Reduction>(signature.reduction)), ")");
  if (signature.root >= 0) text += str(", root ", signature.root);
  return text;
}

void throw_mismatch(uint64_t number, int my_rank, const Signature& mine, int other_rank, const Signature& other) {
  std::string what = describe(mine) == describe(other) ? "the per-rank counts differ" : "";
  throw Mismatch(str("rank ", my_rank, ": operation #", number, ": rank ", my_rank, " called ", describe(mine), ", but rank ", other_rank,
                     " called ", describe(other), what.empty() ? "" : ": ", what,
                     ". All ranks of a communicator must call the same operations in the same order."));
}

}  // namespace trireme::ccl
