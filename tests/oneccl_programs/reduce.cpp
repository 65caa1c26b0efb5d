// reduce and reduce_scatter, with the library's reductions and the program's own.
#include "ranks.hpp"

void check_reduce(const ccl::communicator& comm) {
  for (int root = 0; root < comm.size(); ++root) {
    std::vector<int> in(3000), out(3000, -1);
    for (size_t i = 0; i < in.size(); ++i) in[i] = ranks::value(comm.rank(), i);
    ccl::reduce(in.data(), out.data(), in.size(), ccl::reduction::sum, root, comm).wait();
    for (size_t i = 0; i < in.size(); ++i) CHECK(comm.rank() != root || out[i] == ranks::sum(comm.size(), i));

    // Only the root needs a receive buffer.
    void* receive = comm.rank() == root ? in.data() : nullptr;
    ccl::reduce(in.data(), receive, in.size(), ccl::datatype::int32, ccl::reduction::sum, root, comm, ccl::create_stream())
        .wait();
    CHECK(comm.rank() != root || in == out);
  }
}

void check_reduce_scatter(const ccl::communicator& comm) {
  const size_t count = 501, size = comm.size(), rank = comm.rank();
  std::vector<float> in(count * size), out(count);
  for (size_t i = 0; i < in.size(); ++i) in[i] = ranks::value(comm.rank(), i);
  ccl::reduce_scatter(in.data(), out.data(), count, ccl::reduction::sum, comm).wait();
  for (size_t i = 0; i < count; ++i) CHECK(out[i] == ranks::sum(comm.size(), rank * count + i));

  float* share = in.data() + rank * count;
  ccl::reduce_scatter(in.data(), share, count, ccl::reduction::sum, comm, ccl::create_stream(),
                      ccl::create_operation_attr<ccl::reduce_scatter_attr>())
      .wait();
  for (size_t i = 0; i < count; ++i) CHECK(share[i] == out[i]);
}

void add(const void* in, size_t count, void* inout, size_t* out_count, ccl::datatype, const ccl::fn_context*) {
  for (size_t i = 0; i < count; ++i) static_cast<float*>(inout)[i] += static_cast<const float*>(in)[i];
  *out_count = count;
}

void check_custom(const ccl::communicator& comm) {
  const size_t count = 65, size = comm.size(), rank = comm.rank();
  std::vector<float> in(count * size), out(count * size, -1);
  for (size_t i = 0; i < in.size(); ++i) in[i] = ranks::value(comm.rank(), i);

  auto reduce_attr = ccl::create_operation_attr<ccl::reduce_attr>();
  reduce_attr.set<ccl::reduce_attr_id::reduction_fn>(add);
  const int root = comm.size() - 1;
  ccl::reduce(in.data(), out.data(), in.size(), ccl::reduction::custom, root, comm, reduce_attr).wait();
  for (size_t i = 0; i < in.size(); ++i) CHECK(out[i] == (comm.rank() == root ? ranks::sum(comm.size(), i) : -1));

  auto reduce_scatter_attr =
      ccl::create_operation_attr<ccl::reduce_scatter_attr>(ccl::attr_val<ccl::reduce_scatter_attr_id::reduction_fn>(&add));
  ccl::reduce_scatter(in.data(), out.data(), count, ccl::reduction::custom, comm, reduce_scatter_attr).wait();
  for (size_t i = 0; i < count; ++i) CHECK(out[i] == ranks::sum(comm.size(), rank * count + i));
}

void run(ccl::communicator& comm, const ccl::shared_ptr_class<ccl::kvs>&) {
  check_reduce(comm);
  check_reduce_scatter(comm);
  check_custom(comm);
}
