// Ranks that call different things: each learns what was called, and that communicator is dead.
#include <functional>

#include "ranks.hpp"

using body = std::function<void(const ccl::communicator&)>;

// Rank 0 does one thing, the others another, on a communicator that is theirs alone. One whose part was over before the others came learns
// it in the next operation.
void check_mismatch(const ccl::communicator& comm, const ccl::shared_ptr_class<ccl::kvs>& kvs, const std::string& text,
                    const body& first, const body& others) {
  auto torn = ccl::create_communicator(comm.size(), comm.rank(), kvs);
  const body& mine = comm.rank() == 0 ? first : others;
  CHECK_THROWS(ccl::exception, text, (mine(torn), ccl::barrier(torn)));
  ccl::barrier(comm);
}

void add(const void* in, size_t count, void* inout, size_t*, ccl::datatype, const ccl::fn_context*) {
  for (size_t i = 0; i < count; ++i) static_cast<int*>(inout)[i] += static_cast<const int*>(in)[i];
}

void run(ccl::communicator& comm, const ccl::shared_ptr_class<ccl::kvs>& kvs) {
  if (comm.size() == 1) return;
  for (const size_t count : {size_t(3), size_t(100000)}) {
    const size_t size = static_cast<size_t>(comm.size());
    std::vector<int> in(count * size, 1), out(count * size);
    std::vector<float> floats(count * size), others(count * size);
    std::vector<uint8_t> bytes(count * sizeof(int)), all_bytes(count * sizeof(int) * size);
    const std::vector<size_t> counts(size, count);
    auto attr = ccl::create_operation_attr<ccl::allreduce_attr>();
    attr.set<ccl::allreduce_attr_id::reduction_fn>(add);
    auto reduce_attr = ccl::create_operation_attr<ccl::reduce_attr>();
    reduce_attr.set<ccl::reduce_attr_id::reduction_fn>(add);

    check_mismatch(
        comm, kvs, "alltoall of int32", [&](const ccl::communicator& c) { ccl::alltoall(in.data(), out.data(), count, c).wait(); },
        [&](const ccl::communicator& c) { ccl::alltoall(floats.data(), others.data(), count, c).wait(); });
    check_mismatch(
        comm, kvs, "alltoall of float32",
        [&](const ccl::communicator& c) { ccl::alltoallv(in.data(), counts, out.data(), counts, c).wait(); },
        [&](const ccl::communicator& c) { ccl::alltoallv(floats.data(), counts, others.data(), counts, c).wait(); });

    const body custom = [&](const ccl::communicator& c) {
      ccl::allreduce(in.data(), out.data(), count, ccl::reduction::custom, c, attr).wait();
    };
    check_mismatch(comm, kvs, "allgather of uint8", custom, [&](const ccl::communicator& c) {
      ccl::allgather(bytes.data(), all_bytes.data(), bytes.size(), c).wait();
    });
    check_mismatch(comm, kvs, "(custom)", custom, [&](const ccl::communicator& c) {
      ccl::allreduce(in.data(), out.data(), count, ccl::reduction::sum, c).wait();
    });
    const auto reduce_to = [&](int root) -> body {
      return [&, root](const ccl::communicator& c) {
        ccl::reduce(in.data(), out.data(), count, ccl::reduction::custom, root, c, reduce_attr).wait();
      };
    };
    check_mismatch(comm, kvs, "root 1", reduce_to(0), reduce_to(1));
  }
}
