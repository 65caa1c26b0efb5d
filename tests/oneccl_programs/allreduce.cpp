// allreduce in its forms: types, reductions, in place, functions of the program's own, scaled sums.
#include <cstring>

#include "ranks.hpp"

template <class T>
void check_type(const ccl::communicator& comm, ccl::datatype dtype) {
  for (size_t count : {size_t(0), size_t(1), size_t(7), size_t(1000), size_t(70001)}) {
    std::vector<T> in(count), out(count + 1, T(99));
    for (size_t i = 0; i < count; ++i) in[i] = static_cast<T>(ranks::value(comm.rank(), i));
    ccl::allreduce(in.data(), out.data(), count, ccl::reduction::sum, comm).wait();
    for (size_t i = 0; i < count; ++i) CHECK(out[i] == static_cast<T>(ranks::sum(comm.size(), i)));
    CHECK(out[count] == T(99));
    ccl::allreduce(in.data(), in.data(), count, dtype, ccl::reduction::sum, comm, ccl::create_stream()).wait();
    for (size_t i = 0; i < count; ++i) CHECK(in[i] == out[i]);
  }
}

void check_reductions(const ccl::communicator& comm) {
  const int size = comm.size();
  const double in = comm.rank() + 1;
  double product = 1;
  for (int rank = 0; rank < size; ++rank) product *= rank + 1;
  const std::pair<ccl::reduction, double> expected[] = {{ccl::reduction::sum, size * (size + 1) / 2.0},
                                                        {ccl::reduction::prod, product},
                                                        {ccl::reduction::min, 1.0},
                                                        {ccl::reduction::max, double(size)},
                                                        {ccl::reduction::avg, (size + 1) / 2.0}};
  for (const auto& reduction_and_result : expected) {
    double out = 0;
    ccl::allreduce(&in, &out, 1, reduction_and_result.first, comm).wait();
    CHECK(out == reduction_and_result.second);
  }
}

// 1.0 and its sums are exact in both 16-bit types.
void check_16_bit(const ccl::communicator& comm) {
  const ccl::bfloat16 one_bf16(0x3f80);
  const ccl::float16 one_fp16(0x3c00);
  ccl::bfloat16 bf16;
  ccl::float16 fp16;
  ccl::allreduce(&one_bf16, &bf16, 1, ccl::reduction::max, comm).wait();
  ccl::allreduce(&one_fp16, &fp16, 1, ccl::reduction::avg, comm).wait();
  CHECK(bf16 == one_bf16);
  CHECK(fp16 == one_fp16);
}

// Keeps the larger magnitude.
void largest(const void* in, size_t count, void* inout, size_t* out_count, ccl::datatype dtype,
             const ccl::fn_context* context) {
  CHECK(dtype == ccl::datatype::int32);
  CHECK(std::strcmp(context->match_id, "largest") == 0);
  CHECK(context->offset == 0);
  const int* from = static_cast<const int*>(in);
  int* to = static_cast<int*>(inout);
  for (size_t i = 0; i < count; ++i) {
    if (std::abs(from[i]) > std::abs(to[i])) to[i] = from[i];
  }
  if (out_count) *out_count = count;
}

void check_custom(const ccl::communicator& comm) {
  auto attr = ccl::create_operation_attr<ccl::allreduce_attr>(
      ccl::attr_val<ccl::operation_attr_id::match_id>(ccl::string_class("largest")));
  attr.set<ccl::allreduce_attr_id::reduction_fn>((ccl::reduction_fn)largest);
  std::vector<int> values(300);
  for (size_t i = 0; i < values.size(); ++i) values[i] = (comm.rank() % 2 ? -1 : 1) * ranks::value(comm.rank(), i);
  ccl::allreduce(values.data(), values.data(), values.size(), ccl::reduction::custom, comm, attr).wait();
  const int last = comm.size() - 1;
  for (size_t i = 0; i < values.size(); ++i) CHECK(values[i] == (last % 2 ? -1 : 1) * ranks::value(last, i));

  CHECK_THROWS(ccl::invalid_argument, "reduction_fn",
               ccl::allreduce(values.data(), values.data(), 1, ccl::reduction::custom, comm));
}

void add(const void* in, size_t count, void* inout, size_t*, ccl::datatype, const ccl::fn_context*) {
  for (size_t i = 0; i < count; ++i) static_cast<float*>(inout)[i] += static_cast<const float*>(in)[i];
}

void check_scaled(const ccl::communicator& comm) {
  float factor = comm.rank() + 2.0f;
  ccl::reduction scaled_sum;
  ccl::reduction_create_pre_mul_sum(&scaled_sum, &factor, ccl::datatype::float32,
                                    ccl::scalar_residence_type::scalar_host_immediate, comm);
  factor = 0;
  const float one[2] = {1, 10};
  float out[2];
  ccl::allreduce(one, out, 2, scaled_sum, comm).wait();
  float expected = 0;
  for (int rank = 0; rank < comm.size(); ++rank) expected += rank + 2.0f;
  CHECK(out[0] == expected && out[1] == 10 * expected);

  // What is scaled is what the operation before it has left, whether that is waited for, or stands before it in a group. The same with a function
  // of the program's, whose result the next operation takes.
  auto add_up = ccl::create_operation_attr<ccl::allreduce_attr>();
  add_up.set<ccl::allreduce_attr_id::reduction_fn>((ccl::reduction_fn)add);
  for (size_t count : {size_t(2), size_t(1) << 18}) {
    const std::vector<float> ones(count, 1);
    const std::vector<float> wanted(count, expected * static_cast<float>(comm.size()));
    std::vector<float> sums(count, -1), scaled(count);
    auto first = ccl::allreduce(ones.data(), sums.data(), count, ccl::reduction::sum, comm);
    std::vector<ccl::event> deps;
    deps.push_back(std::move(first));
    ccl::allreduce(sums.data(), scaled.data(), count, scaled_sum, comm, ccl::default_allreduce_attr, deps).wait();
    CHECK(scaled == wanted);

    sums.assign(count, -1), scaled.assign(count, -1);
    ccl::group_start();
    ccl::allreduce(ones.data(), sums.data(), count, ccl::reduction::custom, comm, add_up);
    ccl::allreduce(sums.data(), scaled.data(), count, scaled_sum, comm);
    ccl::group_end();
    CHECK(scaled == wanted);
  }

  const double wrong = 0;
  double unused;
  CHECK_THROWS(ccl::invalid_argument, "dtype", ccl::allreduce(&wrong, &unused, 1, scaled_sum, comm));
  CHECK_THROWS(ccl::unsupported, "device",
               ccl::reduction_create_pre_mul_sum(&scaled_sum, &factor, ccl::datatype::float32,
                                                 ccl::scalar_residence_type::scalar_device, comm));
  ccl::reduction_destroy(scaled_sum, comm);
  CHECK_THROWS(ccl::invalid_argument, "rtype", ccl::allreduce(one, out, 2, scaled_sum, comm));
}

void run(ccl::communicator& comm, const ccl::shared_ptr_class<ccl::kvs>&) {
  check_type<int8_t>(comm, ccl::datatype::int8);
  check_type<uint8_t>(comm, ccl::datatype::uint8);
  check_type<int16_t>(comm, ccl::datatype::int16);
  check_type<uint16_t>(comm, ccl::datatype::uint16);
  check_type<int32_t>(comm, ccl::datatype::int32);
  check_type<uint32_t>(comm, ccl::datatype::uint32);
  check_type<int64_t>(comm, ccl::datatype::int64);
  check_type<uint64_t>(comm, ccl::datatype::uint64);
  check_type<float>(comm, ccl::datatype::float32);
  check_type<double>(comm, ccl::datatype::float64);
  check_reductions(comm);
  check_16_bit(comm);
  check_custom(comm);
  check_scaled(comm);
}
