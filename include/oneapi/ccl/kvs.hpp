// The key-value store through which the ranks of a communicator find each other.
#pragma once

#include <memory>

#include "oneapi/ccl/attributes.hpp"
#include "oneapi/ccl/config.h"
#include "oneapi/ccl/types.hpp"

namespace ccl {
inline namespace v1 {

namespace detail {
struct access;
class kvs_store;
}  // namespace detail

// A program may bring its own: get() blocks until the key is there, or returns nothing while it is not.
class CCL_API kvs_interface {
 public:
  virtual ~kvs_interface();
  virtual vector_class<char> get(const string_class& key) = 0;
  virtual void set(const string_class& key, const vector_class<char>& data) = 0;
  // Not asked for by this library; programs written for oneCCL 2022 override it.
  virtual int get_id();
};

// The library's own: a server in the process that made it with create_main_kvs, clients elsewhere. Threads may share it. The
// server ends with the last reference to it. get() does not wait: it returns nothing for a key that is not there.
class CCL_API kvs final : public kvs_interface {
 public:
  static constexpr size_t address_max_size = 256;
  using address_type = array_class<char, address_max_size>;

  ~kvs() override;
  // What the other processes pass to create_kvs. It holds the secret that lets them in.
  address_type get_address() const;
  vector_class<char> get(const string_class& key) override;
  void set(const string_class& key, const vector_class<char>& data) override;
  int get_id() override;
  // A number that no earlier call in this process has returned.
  static int allocate_id();

 private:
  friend struct detail::access;
  explicit kvs(std::unique_ptr<detail::kvs_store> store);
  std::unique_ptr<detail::kvs_store> store_;
};

CCL_API shared_ptr_class<kvs> create_main_kvs(const kvs_attr& attr = default_kvs_attr);
// Connects when first used. Throws invalid_argument for an address that this library did not make.
CCL_API shared_ptr_class<kvs> create_kvs(const kvs::address_type& address, const kvs_attr& attr = default_kvs_attr);

}  // namespace v1
}  // namespace ccl
