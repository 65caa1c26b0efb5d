// Events: waiting, testing, dependencies, synchronous operations, and what happens to one that is dropped.
#include "ranks.hpp"

static_assert(!std::is_copy_constructible<ccl::event>::value, "an event is move only");
static_assert(std::is_nothrow_move_constructible<ccl::event>::value, "a vector of events moves them");

// Is destroyed after the library's own statics, which its complete operation no longer needs.
ccl::event kept;

void check_empty() {
  ccl::event empty;
  empty.wait();
  CHECK(empty.test());
  CHECK(static_cast<bool>(empty));
  CHECK(empty.cancel());
  CHECK(empty == ccl::event());
  CHECK_THROWS(ccl::unsupported, "get_native", empty.get_native());
}

void check_many_in_flight(const ccl::communicator& comm) {
  std::vector<ccl::event> events(64);
  std::vector<int> in(64), out(64);
  for (size_t i = 0; i < events.size(); ++i) {
    in[i] = ranks::value(comm.rank(), i);
    events[i] = ccl::allreduce(&in[i], &out[i], 1, ccl::reduction::sum, comm);
    CHECK(!events[i].cancel());
  }
  CHECK(events[0] != events[1]);
  while (!events[63].test()) std::this_thread::yield();
  for (auto& event : events) event.wait();
  for (size_t i = 0; i < events.size(); ++i) CHECK(out[i] == ranks::sum(comm.size(), i));
}

void check_dependencies(const ccl::communicator& comm) {
  int value = comm.rank() == 0 ? 5 : 0, sum = 0;
  std::vector<ccl::event> dependencies;
  dependencies.push_back(ccl::broadcast(&value, 1, 0, comm));
  dependencies.push_back(ccl::event());
  ccl::allreduce(&value, &sum, 1, ccl::reduction::sum, comm, ccl::default_allreduce_attr, dependencies).wait();
  CHECK(sum == 5 * comm.size());
  CHECK(dependencies[0].test());
  if (comm.rank() == 0) kept = std::move(dependencies[0]);
}

// The buffers of a dropped event may be freed at once.
void check_dropped(const ccl::communicator& comm) {
  std::vector<int> in(100000, 1), out(100000);
  { auto dropped = ccl::allreduce(in.data(), out.data(), in.size(), ccl::reduction::sum, comm); }
  CHECK(out == std::vector<int>(100000, comm.size()));
  auto overwritten = ccl::allreduce(out.data(), in.data(), in.size(), ccl::reduction::max, comm);
  overwritten = ccl::event();
  CHECK(in == out);
}

void check_synchronous(const ccl::communicator& comm) {
  auto attr = ccl::create_operation_attr<ccl::allreduce_attr>(ccl::attr_val<ccl::operation_attr_id::synchronous>(true));
  int in = 1, out = 0;
  auto event = ccl::allreduce(&in, &out, 1, ccl::reduction::sum, comm, attr);
  CHECK(out == comm.size());
  CHECK(event.test());
  CHECK(ccl::barrier(comm).test());
}

void run(ccl::communicator& comm, const ccl::shared_ptr_class<ccl::kvs>&) {
  check_empty();
  check_many_in_flight(comm);
  check_dependencies(comm);
  check_dropped(comm);
  check_synchronous(comm);
}
