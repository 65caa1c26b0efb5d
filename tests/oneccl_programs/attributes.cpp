// Attributes as values, the version, strings, exceptions, devices: what needs no other rank.
#include <cstring>

#include "ranks.hpp"

void ignore(const void*, size_t, void*, size_t*, ccl::datatype, const ccl::fn_context*) {}

void check_operation_attributes() {
  auto attr = ccl::create_operation_attr<ccl::allreduce_attr>(ccl::attr_val<ccl::operation_attr_id::priority>(3),
                                                              ccl::attr_val<ccl::operation_attr_id::to_cache>(true));
  CHECK(attr.get<ccl::operation_attr_id::priority>() == 3);
  CHECK(attr.get<ccl::operation_attr_id::to_cache>());
  CHECK(!attr.get<ccl::operation_attr_id::synchronous>());
  CHECK(attr.set<ccl::operation_attr_id::priority>(7) == 3);
  CHECK(attr.get<ccl::operation_attr_id::version>().major == CCL_MAJOR_VERSION);

  CHECK(attr.get<ccl::allreduce_attr_id::reduction_fn>().get() == nullptr);
  CHECK(attr.set<ccl::allreduce_attr_id::reduction_fn>(ignore).get() == nullptr);
  CHECK(attr.get<ccl::allreduce_attr_id::reduction_fn>().get() == ignore);

  ccl::allreduce_attr copy = attr;
  copy.set<ccl::operation_attr_id::match_id>(std::string("copy"));
  CHECK(copy.get<ccl::operation_attr_id::match_id>() == "copy");
  CHECK(attr.get<ccl::operation_attr_id::match_id>().length() == 0);
  copy = attr;
  CHECK(copy.get<ccl::operation_attr_id::match_id>() == "");

  auto pt2pt = ccl::create_operation_attr<ccl::pt2pt_attr>(ccl::attr_val<ccl::pt2pt_attr_id::group_id>(2));
  CHECK(pt2pt.get<ccl::pt2pt_attr_id::group_id>() == 2);
  using priority = ccl::detail::ccl_api_type_attr_traits<ccl::operation_attr_id, ccl::operation_attr_id::priority>;
  static_assert(static_cast<int>(ccl::alltoall_attr_id::op_id_offset) == 5, "as in oneCCL");
  CHECK(ccl::default_gather_attr.get<ccl::operation_attr_id::version>().major == ccl::ccl_empty_attr::version.major);
  CHECK(ccl::device_index_type(0, 0, ccl::unused_index_value) > ccl::device_index_type(0, 0, ccl::index_type(7)));
  static_assert(std::is_same<priority::return_type, size_t>::value, "a priority is a size_t");
}

void check_other_attributes() {
  auto split = ccl::preview::create_comm_split_attr(ccl::attr_val<ccl::comm_split_attr_id::color>(123));
  CHECK(split.is_valid<ccl::comm_split_attr_id::color>() && !split.is_valid<ccl::comm_split_attr_id::group>());
  CHECK(split.get<ccl::comm_split_attr_id::color>() == 123);
  CHECK(ccl::create_init_attr().get<ccl::init_attr_id::version>().major == CCL_MAJOR_VERSION);
  ccl::init(ccl::create_init_attr());
}

void check_version() {
  const auto version = ccl::get_library_version();
  CHECK(version.major == CCL_MAJOR_VERSION && version.minor == CCL_MINOR_VERSION && version.update == CCL_UPDATE_VERSION);
  CHECK(std::strcmp(version.full, CCL_PRODUCT_FULL) == 0);
  CHECK(version.cl_backend_name.length() > 0);
}

void check_strings() {
  ccl::string_class text = std::to_string(12);
  text = text + "-" + std::string("34") + ccl::string("!");
  CHECK(std::string(text) == "12-34!" && text.length() == 6 && text == "12-34!" && text != "12");
  CHECK("<" + text == std::string("<12-34!"));
  std::ostringstream out;
  out << text;
  CHECK(out.str() == text.c_str());
  ccl::string moved = std::move(text);
  CHECK(moved.length() == 6 && ccl::string("a") < ccl::string("b"));
}

void check_exceptions() {
  CHECK(std::strcmp(ccl::exception("what").what(), "what") == 0);
  CHECK(std::strcmp(ccl::exception("domain", "function", "what").what(), "domain/function: what") == 0);
  CHECK_THROWS(std::exception, "f: invalid argument: n", throw ccl::invalid_argument("", "f", "n"));
  CHECK_THROWS(ccl::exception, "memory", throw ccl::host_bad_alloc("d", "f"));
  CHECK_THROWS(ccl::exception, "not implemented", throw ccl::unimplemented("d", "f"));
}

struct some_queue {};

void check_devices() {
  auto device = ccl::create_device(ccl::empty_t());
  auto context = ccl::create_context();
  ccl::stream stream = ccl::create_stream(), other = stream;
  stream = other;
  CHECK(device == ccl::create_device() && !(context < ccl::create_context()));
  CHECK(device.get<ccl::device_attr_id::cl_backend>() == ccl::cl_backend_type::empty_backend);
  CHECK(stream.get<ccl::stream_attr_id::version>().major == CCL_MAJOR_VERSION);
  some_queue queue;
  CHECK_THROWS(ccl::unsupported, "host memory", ccl::create_stream(queue));
  CHECK_THROWS(ccl::unsupported, "host memory", ccl::create_device(queue));
  CHECK_THROWS(ccl::unsupported, "host memory", ccl::create_event(queue));
  namespace spelled_out = oneapi::ccl;
  CHECK(ccl::attr_val(2, spelled_out::v1::create_device()).first == 2);
}

void run(ccl::communicator&, const ccl::shared_ptr_class<ccl::kvs>&) {
  check_operation_attributes();
  check_other_attributes();
  check_version();
  check_strings();
  check_exceptions();
  check_devices();
}
