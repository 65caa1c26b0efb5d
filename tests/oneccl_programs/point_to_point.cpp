// send and recv, alone and in groups.
#include "ranks.hpp"

// A token goes round the ring, each rank adding one.
void check_ring(const ccl::communicator& comm) {
  const int size = comm.size(), rank = comm.rank();
  if (size == 1) return;
  const int next = (rank + 1) % size, previous = (rank + size - 1) % size;
  std::vector<int> token(10000, 0);
  if (rank == 0) {
    ccl::send(token.data(), token.size(), next, comm).wait();
    ccl::recv(token.data(), token.size(), previous, comm, ccl::create_stream()).wait();
    CHECK(token == std::vector<int>(10000, size - 1));
  } else {
    void* buffer = token.data();
    ccl::recv(buffer, token.size(), ccl::datatype::int32, previous, comm).wait();
    for (int& value : token) ++value;
    ccl::send(buffer, token.size(), ccl::datatype::int32, next, comm, ccl::create_operation_attr<ccl::pt2pt_attr>()).wait();
  }
}

// Everyone sends to everyone in one group, which would block without it. `keep_events`: wait for them, or let group_end do
// it.
void check_group(const ccl::communicator& comm, bool keep_events) {
  const int size = comm.size(), rank = comm.rank();
  const size_t count = 20000;
  std::vector<std::vector<int>> in(size, std::vector<int>(count, -1)), out(size, std::vector<int>(count));
  std::vector<ccl::event> events;
  ccl::group_start();
  ccl::group_start();
  for (int peer = 0; peer < size; ++peer) {
    if (peer == rank) continue;
    std::fill(out[peer].begin(), out[peer].end(), rank * 100 + peer);
    auto sent = ccl::send(out[peer].data(), count, peer, comm);
    auto received = ccl::recv(in[peer].data(), count, peer, comm);
    CHECK(!received.test());
    CHECK_THROWS(ccl::exception, "group_end", received.wait());
    if (keep_events) {
      events.push_back(std::move(sent));
      events.push_back(std::move(received));
    }
  }
  ccl::group_end();
  for (auto& event : events) CHECK(!event.test());
  ccl::group_end();
  for (auto& event : events) event.wait();
  for (int peer = 0; peer < size; ++peer) {
    if (peer != rank) CHECK(in[peer] == std::vector<int>(count, peer * 100 + rank));
  }
}

// Collectives may be grouped too; a wrong argument shows at its call, and the rest of the group is as if it had not been
// made.
void check_grouped_collectives(const ccl::communicator& comm) {
  int one = 1, sum = 0, from_root = comm.rank() == 0 ? 42 : 0;
  ccl::group_start();
  auto summed = ccl::allreduce(&one, &sum, 1, ccl::reduction::sum, comm);
  CHECK_THROWS(ccl::invalid_argument, "root", ccl::broadcast(&from_root, 1, comm.size(), comm));
  auto sent = ccl::broadcast(&from_root, 1, 0, comm);
  auto passed = ccl::barrier(comm);
  ccl::group_end();
  CHECK(passed.test());
  summed.wait();
  sent.wait();
  CHECK(sum == comm.size() && from_root == 42);
}

void run(ccl::communicator& comm, const ccl::shared_ptr_class<ccl::kvs>&) {
  check_ring(comm);
  check_group(comm, true);
  check_group(comm, false);
  check_grouped_collectives(comm);
  int unused = 0;
  CHECK_THROWS(ccl::invalid_argument, "peer", ccl::recv(&unused, 1, -1, comm));
  CHECK_THROWS(ccl::invalid_argument, "peer", ccl::send(&unused, 1, comm.size(), comm));
  CHECK_THROWS(ccl::exception, "group_start", ccl::group_end());
}
