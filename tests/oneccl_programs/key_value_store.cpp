// The library's key-value store, used by the program itself.
#include "ranks.hpp"

std::string text(const ccl::vector_class<char>& data) { return std::string(data.begin(), data.end()); }

void run(ccl::communicator& comm, const ccl::shared_ptr_class<ccl::kvs>& kvs) {
  const std::string key = "name-" + std::to_string(comm.rank()), value = "value-" + std::to_string(comm.rank());
  CHECK(kvs->get("nobody sets this").empty());
  kvs->set(key, ccl::vector_class<char>(value.begin(), value.end()));
  ccl::barrier(comm);
  for (int rank = 0; rank < comm.size(); ++rank) {
    CHECK(text(kvs->get("name-" + std::to_string(rank))) == "value-" + std::to_string(rank));
  }

  CHECK(kvs->get_address().size() == ccl::kvs::address_max_size + 0);
  auto second = ccl::create_kvs(kvs->get_address());
  CHECK(text(second->get("name-0")) == "value-0");
  ccl::kvs_interface& any = *second;
  any.set("through the interface", {'x'});
  CHECK(text(any.get("through the interface")) == "x");

  CHECK(ccl::kvs::allocate_id() != ccl::kvs::allocate_id());

  ccl::kvs::address_type not_an_address;
  not_an_address.fill('?');
  CHECK_THROWS(ccl::invalid_argument, "address", ccl::create_kvs(not_an_address));
  auto attr = ccl::create_kvs_attr(ccl::attr_val<ccl::kvs_attr_id::ip_port>(ccl::string_class("not an address")));
  CHECK(attr.is_valid<ccl::kvs_attr_id::ip_port>());
  CHECK_THROWS(ccl::exception, "not an address", ccl::create_main_kvs(attr));
}
