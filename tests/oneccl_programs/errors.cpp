// Wrong arguments: each names its argument, and leaves the communicator as it was.
#include "ranks.hpp"

void check_buffers(const ccl::communicator& comm) {
  std::vector<int> data(10 * comm.size());
  int* const null = nullptr;
  CHECK_THROWS(ccl::invalid_argument, "send_buf", ccl::allreduce(null, data.data(), 10, ccl::reduction::sum, comm));
  CHECK_THROWS(ccl::invalid_argument, "recv_buf", ccl::allreduce(data.data(), null, 10, ccl::reduction::sum, comm));
  CHECK_THROWS(ccl::invalid_argument, "recv_buf", ccl::allgather(data.data(), null, 10, comm));
  CHECK_THROWS(ccl::invalid_argument, "send_buf", ccl::alltoall(null, data.data(), 10, comm));
  CHECK_THROWS(ccl::invalid_argument, "recv_buf", ccl::reduce_scatter(data.data(), null, 10, ccl::reduction::sum, comm));
  CHECK_THROWS(ccl::invalid_argument, "buf", ccl::send(null, 10, 0, comm));
  ccl::allreduce(null, null, 0, ccl::reduction::sum, comm).wait();
}

void check_counts(const ccl::communicator& comm) {
  int data = 0;
  const size_t minus_one = static_cast<size_t>(-1);
  CHECK_THROWS(ccl::invalid_argument, "count", ccl::allreduce(&data, &data, minus_one, ccl::reduction::sum, comm));
  CHECK_THROWS(ccl::invalid_argument, "overflow", ccl::allgather(&data, &data, minus_one, comm));
  CHECK_THROWS(ccl::invalid_argument, "overflow", ccl::alltoall(&data, &data, minus_one, comm));
  CHECK_THROWS(ccl::invalid_argument, "overflow", ccl::broadcast(&data, minus_one, 0, comm));
}

void check_enumerations(const ccl::communicator& comm) {
  int data = 0;
  void* buffer = &data;
  const auto no_type = static_cast<ccl::datatype>(-5);
  const auto no_reduction = static_cast<ccl::reduction>(1000);
  CHECK_THROWS(ccl::invalid_argument, "dtype", ccl::allreduce(buffer, buffer, 1, no_type, ccl::reduction::sum, comm));
  CHECK_THROWS(ccl::invalid_argument, "dtype", ccl::broadcast(buffer, 1, no_type, 0, comm));
  CHECK_THROWS(ccl::invalid_argument, "dtype", ccl::get_datatype_size(no_type));
  CHECK_THROWS(ccl::invalid_argument, "rtype", ccl::allreduce(&data, &data, 1, no_reduction, comm));
  CHECK_THROWS(ccl::invalid_argument, "rtype", ccl::reduce(&data, &data, 1, ccl::reduction::none, 0, comm));
}

void run(ccl::communicator& comm, const ccl::shared_ptr_class<ccl::kvs>&) {
  check_buffers(comm);
  check_counts(comm);
  check_enumerations(comm);
  int one = 1, sum = 0;
  ccl::allreduce(&one, &sum, 1, ccl::reduction::sum, comm).wait();
  CHECK(sum == comm.size());
}
