// The program's own reductions in every operation that reduces: in rank order, at the offset and with the match_id that the context tells, for few
// elements and for many.
#include <cstdint>
#include <cstring>

#include "ranks.hpp"

// Which element this is and who sent it, so that a function that is shown the wrong piece can tell.
uint64_t element(int rank, size_t index) { return index * 16 + static_cast<uint64_t>(rank) + 1; }

// Neither commutative nor associative: the result tells the order.
uint64_t combine(uint64_t so_far, uint64_t next) { return so_far * 31 + next; }

uint64_t expected(int size, size_t index) {
  uint64_t result = element(0, index);
  for (int rank = 1; rank < size; ++rank) result = combine(result, element(rank, index));
  return result;
}

// match_id is "first total": the index of the result's first element, and how many there are.
void fold(const void* in, size_t count, void* inout, size_t* out_count, ccl::datatype dtype, const ccl::fn_context* context) {
  CHECK(dtype == ccl::datatype::uint64 && out_count != nullptr);
  unsigned long first = 0, total = 0;
  CHECK(std::sscanf(context->match_id, "%lu %lu", &first, &total) == 2);
  CHECK(context->offset % sizeof(uint64_t) == 0);
  const size_t at = context->offset / sizeof(uint64_t);
  CHECK(count > 0 && at + count <= total);
  for (size_t i = 0; i < count; ++i) {
    uint64_t next, so_far;
    std::memcpy(&next, static_cast<const char*>(in) + i * sizeof next, sizeof next);
    std::memcpy(&so_far, static_cast<char*>(inout) + i * sizeof so_far, sizeof so_far);
    CHECK((next - 1) / 16 == first + at + i);
    so_far = combine(so_far, next);
    std::memcpy(static_cast<char*>(inout) + i * sizeof so_far, &so_far, sizeof so_far);
  }
  *out_count = count;
}

template <class Attr>
Attr attr_for(size_t first, size_t total) {
  Attr attr = ccl::create_operation_attr<Attr>();
  std::ostringstream match_id;
  match_id << first << " " << total;
  attr.template set<ccl::operation_attr_id::match_id>(ccl::string_class(match_id.str().c_str()));
  return attr;
}

std::vector<uint64_t> inputs(int rank, size_t count) {
  std::vector<uint64_t> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = element(rank, i);
  return values;
}

void check_results(const uint64_t* results, int size, size_t first, size_t count) {
  for (size_t i = 0; i < count; ++i) CHECK(results[i] == expected(size, first + i));
}

void check_allreduce(const ccl::communicator& comm, size_t count) {
  auto attr = attr_for<ccl::allreduce_attr>(0, count);
  attr.set<ccl::allreduce_attr_id::reduction_fn>(fold);
  std::vector<uint64_t> in = inputs(comm.rank(), count), out(count);
  ccl::allreduce(in.data(), out.data(), count, ccl::reduction::custom, comm, attr).wait();
  check_results(out.data(), comm.size(), 0, count);
  CHECK(in == inputs(comm.rank(), count));
  ccl::allreduce(in.data(), in.data(), count, ccl::reduction::custom, comm, attr).wait();
  CHECK(in == out);
}

void check_reduce(const ccl::communicator& comm, size_t count) {
  auto attr = attr_for<ccl::reduce_attr>(0, count);
  attr.set<ccl::reduce_attr_id::reduction_fn>(fold);
  for (int root = 0; root < comm.size(); root += comm.size() == 1 ? 1 : comm.size() - 1) {
    std::vector<uint64_t> in = inputs(comm.rank(), count), out(count);
    ccl::reduce(in.data(), out.data(), count, ccl::reduction::custom, root, comm, attr).wait();
    if (comm.rank() == root) check_results(out.data(), comm.size(), 0, count);
    else CHECK(out == std::vector<uint64_t>(count));
  }
}

void check_reduce_scatter(const ccl::communicator& comm, size_t count) {
  const size_t first = count * static_cast<size_t>(comm.rank());
  auto attr = attr_for<ccl::reduce_scatter_attr>(first, count);
  attr.set<ccl::reduce_scatter_attr_id::reduction_fn>(fold);
  std::vector<uint64_t> in = inputs(comm.rank(), count * static_cast<size_t>(comm.size())), out(count);
  ccl::reduce_scatter(in.data(), out.data(), count, ccl::reduction::custom, comm, attr).wait();
  check_results(out.data(), comm.size(), first, count);
  ccl::reduce_scatter(in.data(), in.data() + first, count, ccl::reduction::custom, comm, attr).wait();
  check_results(in.data() + first, comm.size(), first, count);
}

// Several at once, of which none is waited for before all are begun.
void check_groups(const ccl::communicator& comm) {
  const size_t count = 5003;
  std::vector<std::vector<uint64_t>> data(4, inputs(comm.rank(), count));
  auto attr = attr_for<ccl::allreduce_attr>(0, count);
  attr.set<ccl::allreduce_attr_id::reduction_fn>(fold);
  std::vector<ccl::event> events;
  ccl::group_start();
  for (auto& values : data) events.push_back(ccl::allreduce(values.data(), values.data(), count, ccl::reduction::custom, comm, attr));
  ccl::group_end();
  for (auto& event : events) event.wait();
  for (auto& values : data) check_results(values.data(), comm.size(), 0, count);
}

void refuse(const void*, size_t, void*, size_t*, ccl::datatype, const ccl::fn_context*) { throw std::runtime_error("too much"); }

// What a function throws comes out where its result is waited for, and the communicator lives.
void check_throwing(const ccl::communicator& comm) {
  if (comm.size() == 1) return;
  auto attr = ccl::create_operation_attr<ccl::allreduce_attr>();
  attr.set<ccl::allreduce_attr_id::reduction_fn>(refuse);
  std::vector<uint64_t> data = inputs(comm.rank(), 1000);
  CHECK_THROWS(std::runtime_error, "too much",
               ccl::allreduce(data.data(), data.data(), data.size(), ccl::reduction::custom, comm, attr).wait());
  check_allreduce(comm, 1000);
}

void run(ccl::communicator& comm, const ccl::shared_ptr_class<ccl::kvs>&) {
  const size_t counts[] = {1, 3, 1000, 1025, 40001, 500009};
  for (size_t count : counts) {
    check_allreduce(comm, count);
    check_reduce(comm, count);
    check_reduce_scatter(comm, count);
  }
  check_groups(comm);
  check_throwing(comm);
}
