// Element types of the program's own.
#include <algorithm>

#include "ranks.hpp"

struct point {
  int16_t x;
  int32_t y;
  int8_t z;
};

bool operator==(const point& a, const point& b) { return a.x == b.x && a.y == b.y && a.z == b.z; }

void add_points(const void* in, size_t count, void* inout, size_t* out_count, ccl::datatype dtype, const ccl::fn_context*) {
  CHECK(ccl::get_datatype_size(dtype) == sizeof(point));
  const point* from = static_cast<const point*>(in);
  point* to = static_cast<point*>(inout);
  for (size_t i = 0; i < count; ++i) {
    to[i].x = static_cast<int16_t>(to[i].x + from[i].x);
    to[i].y += from[i].y;
    to[i].z = static_cast<int8_t>(to[i].z + from[i].z);
  }
  *out_count = count;
}

void check_registration() {
  auto attr = ccl::create_datatype_attr(ccl::attr_val<ccl::datatype_attr_id::size>(1));
  std::vector<ccl::datatype> types;
  for (size_t bytes = 1; bytes <= 100; ++bytes) {
    attr.set<ccl::datatype_attr_id::size>(bytes);
    types.push_back(ccl::register_datatype(attr));
    CHECK(ccl::get_datatype_size(types.back()) == bytes);
  }
  for (ccl::datatype type : types) ccl::deregister_datatype(type);
  CHECK_THROWS(ccl::invalid_argument, "dtype", ccl::get_datatype_size(types[0]));
  CHECK_THROWS(ccl::invalid_argument, "registered", ccl::deregister_datatype(types[0]));
  CHECK_THROWS(ccl::invalid_argument, "registered", ccl::deregister_datatype(ccl::datatype::int8));
  attr.set<ccl::datatype_attr_id::size>(0);
  CHECK_THROWS(ccl::invalid_argument, "size", ccl::register_datatype(attr));
}

void check_predefined() {
  CHECK(ccl::get_datatype_size(ccl::datatype::int8) == 1);
  CHECK(ccl::get_datatype_size(ccl::datatype::bfloat16) == 2);
  CHECK(ccl::get_datatype_size(ccl::datatype::float64) == 8);
  const ccl::datatype& dtype = ccl::native_type_info<float>::dtype;
  CHECK(dtype == ccl::datatype::float32);
  CHECK(std::string(ccl::type_info<ccl::datatype::uint16>::name()) == "uint16");
  static_assert(ccl::is_native_type_supported<ccl::float16>(), "float16 is a type of the API");
  static_assert(!ccl::is_native_type_supported<point>(), "point is not");
}

void check_operations(const ccl::communicator& comm) {
  const auto type =
      ccl::register_datatype(ccl::create_datatype_attr(ccl::attr_val<ccl::datatype_attr_id::size>(sizeof(point))));
  const size_t count = 1001, size = comm.size();
  const point mine = {int16_t(comm.rank() + 1), 1000, int8_t(-comm.rank())};
  std::vector<point> in(count, mine), out(count, point()), all(count * size);

  auto attr = ccl::create_operation_attr<ccl::allreduce_attr>();
  attr.set<ccl::allreduce_attr_id::reduction_fn>(add_points);
  ccl::allreduce(in.data(), out.data(), count, type, ccl::reduction::custom, comm, attr).wait();
  point sum = {0, 0, 0};
  for (int rank = 0; rank < comm.size(); ++rank) {
    sum.x = static_cast<int16_t>(sum.x + rank + 1);
    sum.y += 1000;
    sum.z = static_cast<int8_t>(sum.z - rank);
  }
  CHECK(std::count(out.begin(), out.end(), sum) == int(count));

  ccl::allgather(in.data(), static_cast<void*>(all.data()), count, type, comm).wait();
  for (size_t i = 0; i < all.size(); ++i) CHECK(all[i].x == int16_t(i / count + 1));
  ccl::broadcast(static_cast<void*>(in.data()), count, type, 0, comm).wait();
  CHECK(in[count - 1].x == 1);

  CHECK_THROWS(ccl::invalid_argument, "custom",
               ccl::allreduce(in.data(), out.data(), count, type, ccl::reduction::sum, comm));
  ccl::deregister_datatype(type);
  CHECK_THROWS(ccl::invalid_argument, "dtype", ccl::broadcast(static_cast<void*>(in.data()), count, type, 0, comm));
}

void run(ccl::communicator& comm, const ccl::shared_ptr_class<ccl::kvs>&) {
  check_registration();
  check_predefined();
  check_operations(comm);
}
