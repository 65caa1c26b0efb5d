// A group in which one communicator is dead: the operations of the other are carried out, and over when group_end has thrown.
#include <chrono>
#include <thread>

#include "ranks.hpp"

void add(const void* in, size_t count, void* inout, size_t*, ccl::datatype, const ccl::fn_context*) {
  for (size_t i = 0; i < count; ++i) static_cast<int*>(inout)[i] += static_cast<const int*>(in)[i];
}

void run(ccl::communicator& comm, const ccl::shared_ptr_class<ccl::kvs>& kvs) {
  if (comm.size() == 1) return;
  const size_t count = 1 << 18;
  std::vector<int> in(count, comm.rank() + 1), out(count), unused(count);
  auto attr = ccl::create_operation_attr<ccl::allreduce_attr>();
  attr.set<ccl::allreduce_attr_id::reduction_fn>(add);
  {
    auto dead = ccl::create_communicator(comm.size(), comm.rank(), kvs);
    if (comm.rank() != 0) dead.finalize();
    ccl::barrier(comm);
    if (comm.rank() == 0) {
      ccl::group_start();
      ccl::allreduce(in.data(), unused.data(), count, ccl::reduction::sum, dead);
      ccl::allreduce(in.data(), out.data(), count, ccl::reduction::custom, comm, attr);  // with memory of the group's own
      CHECK_THROWS(ccl::exception, "left", ccl::group_end());
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
      ccl::allreduce(in.data(), out.data(), count, ccl::reduction::custom, comm, attr).wait();
    }
  }
  CHECK(out == std::vector<int>(count, ranks::sum(comm.size(), 0)));
}
