// Groups over several communicators: synchronous operations that ranks wait for in different orders, and one communicator that is dead, where the operations of
// the other are carried out, and over when group_end has thrown.
#include <chrono>
#include <map>
#include <thread>
#include <utility>
#include <vector>

#include "ranks.hpp"

void add(const void* in, size_t count, void* inout, size_t*, ccl::datatype, const ccl::fn_context*) {
  for (size_t i = 0; i < count; ++i) static_cast<int*>(inout)[i] += static_cast<const int*>(in)[i];
}

// Ranks whose numbers are odd wait for the communicators the other way round.
void in_different_orders(ccl::communicator& comm, const ccl::shared_ptr_class<ccl::kvs>& kvs) {
  auto other = ccl::create_communicator(comm.size(), comm.rank(), kvs);
  ccl::communicator* order[2] = {&comm, &other};
  if (comm.rank() % 2 == 1) std::swap(order[0], order[1]);
  auto attr = ccl::create_operation_attr<ccl::allreduce_attr>();
  attr.set<ccl::operation_attr_id::synchronous>(true);
  for (size_t count : {size_t(10), size_t(1) << 18}) {
    std::vector<int> in(count, comm.rank() + 1), out[2] = {std::vector<int>(count), std::vector<int>(count)};
    ccl::group_start();
    for (int i = 0; i < 2; ++i) ccl::allreduce(in.data(), out[i].data(), count, ccl::reduction::sum, *order[i], attr);
    for (int i = 0; i < 2; ++i) ccl::barrier(*order[1 - i]);
    ccl::group_end();
    for (int i = 0; i < 2; ++i) CHECK(out[i] == std::vector<int>(count, ranks::sum(comm.size(), 0)));
  }
}

// Both ranks in one thread, which nobody else drives: what an operation waits for must go on by itself.
void with_dependencies_inside() {
  const std::map<int, ccl::device> both{{0, ccl::create_device()}, {1, ccl::create_device()}};
  auto comms = ccl::create_communicators(2, both, ccl::create_context(), ccl::create_main_kvs());
  auto attr = ccl::create_operation_attr<ccl::allreduce_attr>();
  attr.set<ccl::operation_attr_id::synchronous>(true);
  const size_t count = 1 << 18;
  std::vector<int> in(count, 1), sums[2] = {std::vector<int>(count), std::vector<int>(count)}, twice[2] = {sums[0], sums[0]};
  ccl::group_start();
  std::vector<ccl::event> deps[2];
  for (int i = 0; i < 2; ++i)
    deps[i].push_back(ccl::allreduce(in.data(), sums[i].data(), count, ccl::reduction::sum, comms[i], attr));
  for (int i = 0; i < 2; ++i)
    ccl::allreduce(sums[i].data(), twice[i].data(), count, ccl::reduction::sum, comms[i], attr, deps[i]);
  ccl::group_end();
  for (int i = 0; i < 2; ++i) CHECK(twice[i] == std::vector<int>(count, 4));
}

void run(ccl::communicator& comm, const ccl::shared_ptr_class<ccl::kvs>& kvs) {
  if (comm.size() == 1) return;
  in_different_orders(comm, kvs);
  if (comm.rank() == 0) with_dependencies_inside();
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
