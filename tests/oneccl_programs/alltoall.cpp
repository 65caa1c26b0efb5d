// alltoall and alltoallv, in one buffer and in one for each rank.
#include "ranks.hpp"

// What `from` sends to `to` at index i.
int letter(size_t from, size_t to, size_t i) { return static_cast<int>(from * 10000 + to * 100 + i % 100); }

void check_alltoall(const ccl::communicator& comm) {
  const size_t count = 257, size = comm.size(), rank = comm.rank();
  std::vector<int> out(count * size), in(count * size), expected(count * size);
  std::vector<int*> out_apart, in_apart;
  for (size_t r = 0; r < size; ++r) {
    for (size_t i = 0; i < count; ++i) {
      out[r * count + i] = letter(rank, r, i);
      expected[r * count + i] = letter(r, rank, i);
    }
    out_apart.push_back(&out[r * count]);
    in_apart.push_back(&in[r * count]);
  }
  ccl::alltoall(out.data(), in.data(), count, comm).wait();
  CHECK(in == expected);

  std::fill(in.begin(), in.end(), 0);
  ccl::alltoall(out_apart, in_apart, count, comm, ccl::create_stream(), ccl::create_operation_attr<ccl::alltoall_attr>())
      .wait();
  CHECK(in == expected);

  ccl::alltoall(static_cast<void*>(out.data()), static_cast<void*>(out.data()), count, ccl::datatype::int32, comm).wait();
  CHECK(out == expected);

  out_apart.pop_back();
  CHECK_THROWS(ccl::invalid_argument, "send_bufs", ccl::alltoall(out_apart, in_apart, count, comm));
}

// Rank a sends (a + b) % 4 elements to rank b: some send nothing.
void check_alltoallv(const ccl::communicator& comm) {
  const size_t size = comm.size(), rank = comm.rank();
  std::vector<size_t> send_counts, recv_counts;
  std::vector<int> out, expected;
  for (size_t r = 0; r < size; ++r) {
    send_counts.push_back((rank + r) % 4);
    recv_counts.push_back((rank + r) % 4);
    for (size_t i = 0; i < send_counts[r]; ++i) {
      out.push_back(letter(rank, r, i));
      expected.push_back(letter(r, rank, i));
    }
  }
  std::vector<int> in(expected.size());
  ccl::alltoallv(out.data(), send_counts, in.data(), recv_counts, comm).wait();
  CHECK(in == expected);

  std::vector<void*> out_apart, in_apart;
  size_t offset = 0;
  for (size_t r = 0; r < size; offset += send_counts[r++]) {
    out_apart.push_back(out.data() + offset);
    in_apart.push_back(in.data() + offset);
  }
  std::fill(in.begin(), in.end(), 0);
  ccl::alltoallv(out_apart, send_counts, in_apart, recv_counts, ccl::datatype::int32, comm).wait();
  CHECK(in == expected);
}

void run(ccl::communicator& comm, const ccl::shared_ptr_class<ccl::kvs>&) {
  check_alltoall(comm);
  check_alltoallv(comm);
}
