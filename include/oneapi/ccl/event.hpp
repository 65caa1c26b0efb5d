// An operation under way.
#pragma once

#include <memory>

#include "oneapi/ccl/config.h"
#include "oneapi/ccl/exception.hpp"
#include "oneapi/ccl/types.hpp"

namespace ccl {
inline namespace v1 {

namespace detail {
struct access;
class pending_operation;
}  // namespace detail

// Owns its operation: destroying or overwriting an event waits for it, so that buffers may be freed afterwards (errors are
// then logged). One thread at a time. An event returned inside a group can be waited for after group_end.
class CCL_API event {
 public:
  using native_t = empty_t;

  event() noexcept;  // a complete one
  event(event&& other) noexcept;
  event& operator=(event&& other) noexcept;
  ~event() noexcept;

  bool operator==(const event& other) const noexcept;
  bool operator!=(const event& other) const noexcept;
  // The same as test().
  explicit operator bool();

  // Both throw what the operation failed with. test() never blocks.
  void wait();
  bool test();
  // An operation cannot be taken back, since the peers may have seen it: false, unless there is none.
  bool cancel();

  // Throw unsupported: the host has no native events.
  native_t& get_native();
  const native_t& get_native() const;
  static event create_from_native(native_t& native_event);

 private:
  friend struct detail::access;
  std::shared_ptr<detail::pending_operation> operation_;
};

template <class Native>
event create_event(Native&) {
  detail::needs_device("create_event");
}

}  // namespace v1
}  // namespace ccl
