#include "oneapi/ccl/kvs.hpp"

#include <atomic>
#include <string>
#include <utility>

#include "trireme/base/env.h"
#include "trireme/base/error.h"
#include "trireme/ccl/api/errors.h"
#include "trireme/ccl/api/handles.h"
#include "trireme/ccl/bootstrap/tcp_store.h"

namespace ccl::inline v1 {
namespace {

// Keeps a program's keys apart from the library's.
std::string program_key(const string_class& key) { return "program/" + std::string(key); }

}  // namespace

shared_ptr_class<kvs> detail::access::make(std::unique_ptr<kvs_store> store) {
  return shared_ptr_class<kvs>(new kvs(std::move(store)));
}

kvs_interface::~kvs_interface() = default;
int kvs_interface::get_id() { return -1; }

kvs::kvs(std::unique_ptr<detail::kvs_store> store) : store_(std::move(store)) {}
kvs::~kvs() = default;

kvs::address_type kvs::get_address() const { return store_->address; }

vector_class<char> kvs::get(const string_class& key) {
  return detail::translating("kvs::get", [&] {
    const auto timeout = trireme::env::duration("CCL_KVS_CONNECTION_TIMEOUT");
    const std::string value = store_->store->try_get(program_key(key), trireme::Deadline::after(timeout));
    return vector_class<char>(value.begin(), value.end());
  });
}

void kvs::set(const string_class& key, const vector_class<char>& data) {
  detail::translating("kvs::set", [&] { store_->store->set(program_key(key), std::string(data.begin(), data.end())); });
}

int kvs::get_id() { return -1; }

int kvs::allocate_id() {
  static std::atomic<int> next{0};
  return next.fetch_add(1, std::memory_order_relaxed);
}

shared_ptr_class<kvs> create_main_kvs(const kvs_attr& attr) {
  return detail::translating("create_main_kvs", [&] {
    const std::string ip_port = attr.is_valid<kvs_attr_id::ip_port>() ? std::string(attr.get<kvs_attr_id::ip_port>())
                                                                      : trireme::env::text("CCL_KVS_IP_PORT");
    kvs::address_type address;
    auto store = trireme::ccl::make_tcp_store_server(ip_port, address);
    return detail::access::make(std::make_unique<detail::kvs_store>(std::move(store), address));
  });
}

shared_ptr_class<kvs> create_kvs(const kvs::address_type& address, const kvs_attr&) {
  return detail::translating("create_kvs", [&] {
    return detail::access::make(std::make_unique<detail::kvs_store>(trireme::ccl::make_tcp_store_client(address), address));
  });
}

}  // namespace ccl::inline v1
