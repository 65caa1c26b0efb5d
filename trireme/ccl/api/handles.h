// What stands behind the API's handles, and the way to it from a handle.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "oneapi/ccl/communicator.hpp"
#include "oneapi/ccl/event.hpp"
#include "oneapi/ccl/kvs.hpp"
#include "oneapi/ccl/memory.hpp"
#include "trireme/ccl/api/pending_operation.h"
#include "trireme/ccl/bootstrap/store.h"
#include "trireme/ccl/comm/communicator.h"

namespace ccl::inline v1::detail {

class communicator_state {
 public:
  // Null: this rank is in no group of a split.
  explicit communicator_state(std::shared_ptr<core::Communicator> communicator);

  int rank() const { return rank_; }
  int size() const { return size_; }
  // Throws InvalidArgument when there is none, or no longer one.
  const std::shared_ptr<core::Communicator>& get() const;
  // Waits for the operations under way, and leaves. Other threads may still be in get().
  void finalize();

 private:
  const std::shared_ptr<core::Communicator> communicator_;
  std::atomic<bool> finalized_{false};
  int rank_ = -1;
  int size_ = 0;
};

class kvs_store {
 public:
  kvs_store(std::shared_ptr<core::Store> store, const kvs::address_type& address)
      : store(std::move(store)), address(address) {}
  const std::shared_ptr<core::Store> store;
  const kvs::address_type address;
};

struct access {
  static communicator make(std::shared_ptr<core::Communicator> communicator);
  // Throws InvalidArgument for a communicator that was moved from.
  static communicator_state& state(const communicator& comm);

  static event make(std::shared_ptr<pending_operation> operation);
  static std::vector<std::shared_ptr<pending_operation>> operations(const vector_class<event>& events);

  static shared_ptr_class<kvs> make(std::unique_ptr<kvs_store> store);
  static const kvs_store& store(const kvs& kvs) { return *kvs.store_; }

  static window make_window(void* buffer) { return window(buffer); }
  static void*& buffer(window& win) { return win.buffer_; }
};

}  // namespace ccl::inline v1::detail
