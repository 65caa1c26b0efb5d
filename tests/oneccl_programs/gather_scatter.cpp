// allgather, allgatherv, broadcast, gather, scatter: data that moves unchanged.
#include "ranks.hpp"

void check_allgather(const ccl::communicator& comm, size_t count) {
  const size_t size = comm.size(), rank = comm.rank();
  std::vector<int> mine(count, comm.rank() + 1), all(count * size), all_again(count * size);
  auto stream = ccl::create_stream();
  auto attr = ccl::create_operation_attr<ccl::allgather_attr>();

  ccl::allgather(mine.data(), all.data(), count, comm).wait();
  for (size_t i = 0; i < all.size(); ++i) CHECK(all[i] == static_cast<int>(i / count) + 1);

  std::vector<int*> apart;
  std::vector<void*> apart_untyped;
  for (size_t r = 0; r < size; ++r) {
    apart.push_back(all_again.data() + r * count);
    apart_untyped.push_back(apart.back());
  }
  ccl::allgather(mine.data(), apart, count, comm, stream, attr).wait();
  CHECK(all_again == all);
  std::fill(all_again.begin(), all_again.end(), 0);
  ccl::allgather(mine.data(), apart_untyped, count, ccl::datatype::int32, comm, attr).wait();
  CHECK(all_again == all);

  // In place: the own share, or null for it.
  for (const int* send : {static_cast<const int*>(apart[rank]), static_cast<const int*>(nullptr)}) {
    std::fill(all_again.begin(), all_again.end(), 0);
    std::fill_n(apart[rank], count, comm.rank() + 1);
    ccl::allgather(send, all_again.data(), count, comm, stream).wait();
    CHECK(all_again == all);
  }
  CHECK_THROWS(ccl::invalid_argument, "overlaps", ccl::allgather(all.data() + 1, all.data(), count, comm));
}

void check_allgatherv(const ccl::communicator& comm) {
  const size_t size = comm.size(), rank = comm.rank();
  std::vector<size_t> counts;
  std::vector<double> expected;
  for (size_t r = 0; r < size; ++r) {
    counts.push_back(r * 3);  // nothing from rank 0
    expected.insert(expected.end(), counts[r], r + 0.5);
  }
  const std::vector<double> mine(counts[rank], rank + 0.5);
  std::vector<double> all(expected.size()), all_again(expected.size());
  ccl::allgatherv(mine.data(), mine.size(), all.data(), counts, comm).wait();
  CHECK(all == expected);

  std::vector<double*> apart;
  size_t offset = 0;
  for (size_t r = 0; r < size; offset += counts[r++]) apart.push_back(all_again.data() + offset);
  ccl::allgatherv(mine.data(), mine.size(), apart, counts, comm, ccl::default_stream, ccl::default_allgatherv_attr).wait();
  CHECK(all_again == expected);

  counts.push_back(0);
  CHECK_THROWS(ccl::invalid_argument, "recv_counts", ccl::allgatherv(mine.data(), mine.size(), all.data(), counts, comm));
}

void check_broadcast(const ccl::communicator& comm) {
  for (int root = 0; root < comm.size(); ++root) {
    std::vector<float> data(5000, comm.rank() == root ? 2.5f : 0.0f), copy(5000);
    ccl::broadcast(data.data(), data.size(), root, comm).wait();
    CHECK(data == std::vector<float>(5000, 2.5f));

    std::fill(data.begin(), data.end(), comm.rank() == root ? 7.0f : -1.0f);
    ccl::broadcast(data.data(), copy.data(), data.size(), root, comm, ccl::create_stream()).wait();
    CHECK(copy == std::vector<float>(5000, 7.0f));

    void* buffer = data.data();
    ccl::broadcast(buffer, data.size(), ccl::datatype::float32, root, comm).wait();
    CHECK(data == copy);
  }
  float unused = 0;
  CHECK_THROWS(ccl::invalid_argument, "root", ccl::broadcast(&unused, 1, comm.size(), comm));
  CHECK_THROWS(ccl::invalid_argument, "root", ccl::broadcast(&unused, 1, -1, comm));
}

void check_gather(const ccl::communicator& comm) {
  const size_t count = 33, size = comm.size();
  auto attr = ccl::create_operation_attr<ccl::gather_attr>(ccl::attr_val<ccl::operation_attr_id::synchronous>(true));
  for (int root = 0; root < comm.size(); ++root) {
    const bool here = comm.rank() == root;
    const std::vector<int64_t> mine(count, comm.rank() + 1);
    std::vector<int64_t> all(here ? count * size : 0);
    auto check_all = [&] {
      for (size_t i = 0; i < all.size(); ++i) CHECK(all[i] == static_cast<int64_t>(i / count) + 1);
      std::fill(all.begin(), all.end(), 0);
    };
    ccl::gather(mine.data(), all.data(), count, root, comm).wait();
    check_all();
    ccl::gather(mine.data(), all.data(), count, root, comm, ccl::create_stream(), attr);
    check_all();
    ccl::gather(static_cast<const void*>(mine.data()), all.data(), count, ccl::datatype::int64, root, comm,
                ccl::default_stream, ccl::default_gather_attr)
        .wait();
    check_all();

    // In place: the root's own share.
    if (here) std::copy(mine.begin(), mine.end(), all.begin() + root * count);
    ccl::gather(here ? all.data() + root * count : mine.data(), all.data(), count, root, comm).wait();
    check_all();
    if (here) CHECK_THROWS(ccl::invalid_argument, "overlaps", ccl::gather(all.data() + 1, all.data(), count, root, comm));
    if (here) CHECK_THROWS(ccl::invalid_argument, "recv_buf", ccl::gather<int64_t>(mine.data(), nullptr, count, root, comm));
  }
  int64_t unused = 0;
  CHECK_THROWS(ccl::invalid_argument, "root", ccl::gather(&unused, &unused, 1, comm.size(), comm));
}

void check_scatter(const ccl::communicator& comm) {
  const size_t count = 33, size = comm.size();
  for (int root = 0; root < comm.size(); ++root) {
    std::vector<int64_t> parts(comm.rank() == root ? count * size : 0), mine(count);
    for (size_t i = 0; i < parts.size(); ++i) parts[i] = static_cast<int64_t>(i);
    ccl::scatter(parts.data(), mine.data(), count, root, comm).wait();
    for (size_t i = 0; i < count; ++i) CHECK(mine[i] == static_cast<int64_t>(comm.rank() * count + i));
  }
}

void run(ccl::communicator& comm, const ccl::shared_ptr_class<ccl::kvs>&) {
  check_allgather(comm, 1000);
  check_allgather(comm, 300000);
  check_allgatherv(comm);
  check_broadcast(comm);
  check_gather(comm);
  check_scatter(comm);
}
