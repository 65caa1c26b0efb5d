// Each call is checked as far as the library cannot see it, and becomes a plan.
#include "oneapi/ccl/operations.hpp"

#include <cstdint>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/ccl/api/datatypes.h"
#include "trireme/ccl/api/errors.h"
#include "trireme/ccl/api/handles.h"
#include "trireme/ccl/api/reductions.h"

namespace ccl::inline v1 {

using namespace detail;
using core::Block;
using core::OpKind;
using trireme::InvalidArgument;
using trireme::str;

namespace {

event start(const communicator& comm, plan&& plan, bool synchronous, const vector_class<event>& deps) {
  const auto& communicator = access::state(comm).get();
  plan.operation.caller_waits = synchronous;
  if (in_group()) {
    auto operation = std::make_shared<pending_operation>(communicator, std::move(plan), synchronous, access::operations(deps));
    collect(operation);
    return access::make(std::move(operation));
  }
  if (!deps.empty()) {
    for (const auto& dependency : access::operations(deps)) dependency->wait();
  }
  core::Request request = communicator->submit(std::move(plan.operation));
  // A small operation whose ranks are all there is complete by now: such events share what stands behind them.
  if (!request.under_way()) {
    if (plan.finish) plan.finish();
    return access::make(pending_operation::complete());
  }
  auto operation = std::make_shared<pending_operation>(communicator, std::move(plan), std::move(request));
  if (synchronous) operation->wait();
  return access::make(std::move(operation));
}

event start(const communicator& comm, plan&& plan, const operation_fields& attr, const vector_class<event>& deps) {
  return start(comm, std::move(plan), attr.get<operation_attr_id::synchronous>(), deps);
}

plan plan_of(OpKind kind, datatype dtype, size_t count) {
  const elements elements = elements_of(dtype, count);
  plan plan;
  plan.operation.kind = kind;
  plan.operation.type = elements.type;
  plan.operation.count = elements.count;
  return plan;
}

int size_of(const communicator& comm) { return access::state(comm).get()->size(); }
int rank_of(const communicator& comm) { return access::state(comm).get()->rank(); }

void check_entries(const char* argument, size_t entries, int size) {
  if (entries != static_cast<size_t>(size)) {
    throw InvalidArgument(str(argument, " has ", entries, " entries, one for each of ", size, " ranks is needed"));
  }
}

// One memory after another: counts[r] elements for rank r.
std::vector<Block> end_to_end(const char* argument, const void* buffer, const vector_class<size_t>& counts, datatype dtype) {
  const size_t element_bytes = bytes_of(dtype);
  std::vector<Block> blocks;
  size_t offset = 0;
  for (size_t count : counts) {
    const size_t bytes = multiply(argument, count, element_bytes);
    blocks.push_back({reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(buffer) + offset), bytes});
    if (__builtin_add_overflow(offset, bytes, &offset)) throw InvalidArgument(str(argument, "'s counts overflow"));
  }
  // Seen here because a null plus an offset no longer looks like one.
  if (buffer == nullptr && offset != 0) throw InvalidArgument(str(argument, " is null, but holds ", offset, " bytes"));
  return blocks;
}

std::vector<Block> apart(const char* argument, const vector_class<void*>& buffers, const vector_class<size_t>& counts,
                         datatype dtype) {
  check_entries(argument, buffers.size(), static_cast<int>(counts.size()));
  std::vector<Block> blocks;
  for (size_t r = 0; r < counts.size(); ++r) blocks.push_back({buffers[r], multiply(argument, counts[r], bytes_of(dtype))});
  return blocks;
}

// Half of in place is a mistake: this rank's data would be overwritten before the others have read it.
void check_overlap(const void* send_buf, size_t bytes, const std::vector<Block>& blocks, int rank) {
  if (send_buf == blocks[rank].data) return;
  const auto from = reinterpret_cast<uintptr_t>(send_buf);
  for (const Block& block : blocks) {
    const auto to = reinterpret_cast<uintptr_t>(block.data);
    if (from < to + block.bytes && to < from + bytes) {
      throw InvalidArgument("send_buf overlaps the result without being this rank's share of it");
    }
  }
}

plan plan_allgather(const void* send_buf, size_t send_count, std::vector<Block> recv_blocks, datatype dtype, int rank) {
  plan plan = plan_of(OpKind::allgather, dtype, send_count);
  const void* mine = recv_blocks[rank].data;
  plan.operation.send_buffer = send_buf != nullptr ? send_buf : mine;
  check_overlap(plan.operation.send_buffer, multiply("send_count", send_count, bytes_of(dtype)), recv_blocks, rank);
  plan.operation.recv_blocks = std::move(recv_blocks);
  return plan;
}

plan plan_alltoall(std::vector<Block> send_blocks, std::vector<Block> recv_blocks, datatype dtype) {
  plan plan = plan_of(OpKind::alltoall, dtype, 0);
  plan.operation.send_blocks = std::move(send_blocks);
  plan.operation.recv_blocks = std::move(recv_blocks);
  return plan;
}

plan plan_broadcast(const void* send_buf, void* recv_buf, size_t count, datatype dtype, int root) {
  plan plan = plan_of(OpKind::broadcast, dtype, count);
  plan.operation.send_buffer = send_buf;
  plan.operation.recv_buffer = recv_buf;
  plan.operation.root = root;
  return plan;
}

plan plan_transfer(OpKind kind, void* buf, size_t count, datatype dtype, int peer) {
  // To the library, a negative source is any source: the API has no such thing.
  if (peer < 0) throw InvalidArgument(str("peer = ", peer, " is not a rank"));
  plan plan = plan_of(kind, dtype, count);
  if (kind == OpKind::send) {
    plan.operation.send_buffer = buf;
  } else {
    plan.operation.recv_buffer = buf;
  }
  plan.operation.peer = peer;
  return plan;
}

plan plan_of_reduction(OpKind kind, const void* send_buf, void* recv_buf, size_t count, int root) {
  plan plan;
  plan.operation.kind = kind;
  plan.operation.send_buffer = send_buf;
  plan.operation.recv_buffer = recv_buf;
  plan.operation.count = count;
  plan.operation.root = root;
  return plan;
}

template <auto function_id, class Attr>
reduction_request request_of(reduction rtype, datatype dtype, const Attr& attr) {
  bytes_of(dtype);  // throws for a type that does not exist
  return {rtype, dtype, attr.template get<function_id>().get(), attr.template get<operation_attr_id::match_id>()};
}

}  // namespace

event allgather(const void* send_buf, void* recv_buf, size_t send_count, datatype dtype, const communicator& comm,
                const allgather_attr& attr, const vector_class<event>& deps) {
  return translating("allgather", [&] {
    const vector_class<size_t> counts(size_of(comm), send_count);
    auto blocks = end_to_end("recv_buf", recv_buf, counts, dtype);
    return start(comm, plan_allgather(send_buf, send_count, std::move(blocks), dtype, rank_of(comm)), attr, deps);
  });
}

event allgather(const void* send_buf, const vector_class<void*>& recv_bufs, size_t send_count, datatype dtype,
                const communicator& comm, const allgather_attr& attr, const vector_class<event>& deps) {
  return translating("allgather", [&] {
    const vector_class<size_t> counts(size_of(comm), send_count);
    auto blocks = apart("recv_bufs", recv_bufs, counts, dtype);
    return start(comm, plan_allgather(send_buf, send_count, std::move(blocks), dtype, rank_of(comm)), attr, deps);
  });
}

event allgatherv(const void* send_buf, size_t send_count, void* recv_buf, const vector_class<size_t>& recv_counts,
                 datatype dtype, const communicator& comm, const allgatherv_attr& attr, const vector_class<event>& deps) {
  return translating("allgatherv", [&] {
    check_entries("recv_counts", recv_counts.size(), size_of(comm));
    auto blocks = end_to_end("recv_buf", recv_buf, recv_counts, dtype);
    return start(comm, plan_allgather(send_buf, send_count, std::move(blocks), dtype, rank_of(comm)), attr, deps);
  });
}

event allgatherv(const void* send_buf, size_t send_count, const vector_class<void*>& recv_bufs,
                 const vector_class<size_t>& recv_counts, datatype dtype, const communicator& comm,
                 const allgatherv_attr& attr, const vector_class<event>& deps) {
  return translating("allgatherv", [&] {
    check_entries("recv_counts", recv_counts.size(), size_of(comm));
    auto blocks = apart("recv_bufs", recv_bufs, recv_counts, dtype);
    return start(comm, plan_allgather(send_buf, send_count, std::move(blocks), dtype, rank_of(comm)), attr, deps);
  });
}

event allreduce(const void* send_buf, void* recv_buf, size_t count, datatype dtype, reduction rtype,
                const communicator& comm, const allreduce_attr& attr, const vector_class<event>& deps) {
  return translating("allreduce", [&] {
    auto plan = plan_of_reduction(OpKind::allreduce, send_buf, recv_buf, count, -1);
    const auto request = request_of<allreduce_attr_id::reduction_fn>(rtype, dtype, attr);
    plan_reduction(plan, request, rank_of(comm), size_of(comm));
    return start(comm, std::move(plan), attr, deps);
  });
}

event alltoall(const void* send_buf, void* recv_buf, size_t count, datatype dtype, const communicator& comm,
               const alltoall_attr& attr, const vector_class<event>& deps) {
  return translating("alltoall", [&] {
    const vector_class<size_t> counts(size_of(comm), count);
    return start(
        comm,
        plan_alltoall(end_to_end("send_buf", send_buf, counts, dtype), end_to_end("recv_buf", recv_buf, counts, dtype), dtype),
        attr, deps);
  });
}

event alltoall(const vector_class<void*>& send_bufs, const vector_class<void*>& recv_bufs, size_t count, datatype dtype,
               const communicator& comm, const alltoall_attr& attr, const vector_class<event>& deps) {
  return translating("alltoall", [&] {
    const vector_class<size_t> counts(size_of(comm), count);
    return start(comm,
                 plan_alltoall(apart("send_bufs", send_bufs, counts, dtype), apart("recv_bufs", recv_bufs, counts, dtype), dtype),
                 attr, deps);
  });
}

event alltoallv(const void* send_buf, const vector_class<size_t>& send_counts, void* recv_buf,
                const vector_class<size_t>& recv_counts, datatype dtype, const communicator& comm,
                const alltoallv_attr& attr, const vector_class<event>& deps) {
  return translating("alltoallv", [&] {
    check_entries("send_counts", send_counts.size(), size_of(comm));
    check_entries("recv_counts", recv_counts.size(), size_of(comm));
    return start(comm,
                 plan_alltoall(end_to_end("send_buf", send_buf, send_counts, dtype),
                               end_to_end("recv_buf", recv_buf, recv_counts, dtype), dtype),
                 attr, deps);
  });
}

event alltoallv(const vector_class<void*>& send_bufs, const vector_class<size_t>& send_counts,
                const vector_class<void*>& recv_bufs, const vector_class<size_t>& recv_counts, datatype dtype,
                const communicator& comm, const alltoallv_attr& attr, const vector_class<event>& deps) {
  return translating("alltoallv", [&] {
    check_entries("send_counts", send_counts.size(), size_of(comm));
    check_entries("recv_counts", recv_counts.size(), size_of(comm));
    return start(
        comm,
        plan_alltoall(apart("send_bufs", send_bufs, send_counts, dtype), apart("recv_bufs", recv_bufs, recv_counts, dtype),
                      dtype),
        attr, deps);
  });
}

event barrier(const communicator& comm, const barrier_attr&, const vector_class<event>& deps) {
  // oneCCL's barrier on host memory waits whatever the attribute says, and programs drop its event.
  return translating("barrier", [&] { return start(comm, plan(), true, deps); });
}

event broadcast(void* buf, size_t count, datatype dtype, int root, const communicator& comm, const broadcast_attr& attr,
                const vector_class<event>& deps) {
  return translating("broadcast", [&] { return start(comm, plan_broadcast(buf, buf, count, dtype, root), attr, deps); });
}

event broadcast(void* send_buf, void* recv_buf, size_t count, datatype dtype, int root, const communicator& comm,
                const broadcast_attr& attr, const vector_class<event>& deps) {
  return translating("broadcast",
                     [&] { return start(comm, plan_broadcast(send_buf, recv_buf, count, dtype, root), attr, deps); });
}

event gather(const void* send_buf, void* recv_buf, size_t count, datatype dtype, int root, const communicator& comm,
             const gather_attr& attr, const vector_class<event>& deps) {
  return translating("gather", [&] {
    auto plan = plan_of(OpKind::gather, dtype, count);
    plan.operation.root = root;
    plan.operation.send_buffer = send_buf;
    if (rank_of(comm) == root) {
      const vector_class<size_t> counts(size_of(comm), count);
      auto blocks = end_to_end("recv_buf", recv_buf, counts, dtype);
      check_overlap(send_buf, multiply("count", count, bytes_of(dtype)), blocks, root);
      plan.operation.recv_blocks = std::move(blocks);
    }
    return start(comm, std::move(plan), attr, deps);
  });
}

event send(void* buf, size_t count, datatype dtype, int peer, const communicator& comm, const pt2pt_attr& attr,
           const vector_class<event>& deps) {
  return translating("send", [&] { return start(comm, plan_transfer(OpKind::send, buf, count, dtype, peer), attr, deps); });
}

event recv(void* buf, size_t count, datatype dtype, int peer, const communicator& comm, const pt2pt_attr& attr,
           const vector_class<event>& deps) {
  return translating("recv", [&] { return start(comm, plan_transfer(OpKind::recv, buf, count, dtype, peer), attr, deps); });
}

event reduce(const void* send_buf, void* recv_buf, size_t count, datatype dtype, reduction rtype, int root,
             const communicator& comm, const reduce_attr& attr, const vector_class<event>& deps) {
  return translating("reduce", [&] {
    auto plan = plan_of_reduction(OpKind::reduce, send_buf, recv_buf, count, root);
    const auto request = request_of<reduce_attr_id::reduction_fn>(rtype, dtype, attr);
    plan_reduction(plan, request, rank_of(comm), size_of(comm));
    return start(comm, std::move(plan), attr, deps);
  });
}

event reduce_scatter(const void* send_buf, void* recv_buf, size_t recv_count, datatype dtype, reduction rtype,
                     const communicator& comm, const reduce_scatter_attr& attr, const vector_class<event>& deps) {
  return translating("reduce_scatter", [&] {
    auto plan = plan_of_reduction(OpKind::reduce_scatter, send_buf, recv_buf, 0, -1);
    plan.operation.recv_counts.assign(size_of(comm), recv_count);
    const auto request = request_of<reduce_scatter_attr_id::reduction_fn>(rtype, dtype, attr);
    plan_reduction(plan, request, rank_of(comm), size_of(comm));
    return start(comm, std::move(plan), attr, deps);
  });
}

event scatter(const void* send_buf, void* recv_buf, size_t count, datatype dtype, int root, const communicator& comm,
              const scatter_attr& attr, const vector_class<event>& deps) {
  return translating("scatter", [&] {
    auto plan = plan_of(OpKind::scatter, dtype, count);
    plan.operation.root = root;
    plan.operation.recv_buffer = recv_buf;
    if (rank_of(comm) == root) {
      const vector_class<size_t> counts(size_of(comm), count);
      plan.operation.send_blocks = end_to_end("send_buf", send_buf, counts, dtype);
    }
    return start(comm, std::move(plan), attr, deps);
  });
}

}  // namespace ccl::inline v1
