#include "oneapi/ccl/event.hpp"

#include <utility>

#include "trireme/ccl/api/errors.h"
#include "trireme/ccl/api/handles.h"

namespace ccl::inline v1 {

event detail::access::make(std::shared_ptr<pending_operation> operation) {
  event result;
  result.operation_ = std::move(operation);
  return result;
}

std::vector<std::shared_ptr<detail::pending_operation>> detail::access::operations(const vector_class<event>& events) {
  std::vector<std::shared_ptr<pending_operation>> operations;
  for (const event& event : events) {
    if (event.operation_) operations.push_back(event.operation_);
  }
  return operations;
}

event::event() noexcept = default;
event::event(event&& other) noexcept = default;

event& event::operator=(event&& other) noexcept {
  if (this != &other) {
    if (operation_) operation_->abandon();
    operation_ = std::move(other.operation_);
  }
  return *this;
}

event::~event() noexcept {
  if (operation_) operation_->abandon();
}

// Two events of operations that were complete at once have the same behind them, but are not of the same operation.
bool event::operator==(const event& other) const noexcept {
  return this == &other || (operation_ == other.operation_ && operation_ != detail::pending_operation::complete());
}
bool event::operator!=(const event& other) const noexcept { return !(*this == other); }
event::operator bool() { return test(); }

void event::wait() {
  detail::translating("event::wait", [&] {
    if (operation_) operation_->wait();
  });
}

bool event::test() {
  return detail::translating("event::test", [&] { return !operation_ || operation_->test(); });
}

bool event::cancel() { return operation_ == nullptr; }

event::native_t& event::get_native() { detail::needs_device("event::get_native"); }
const event::native_t& event::get_native() const { detail::needs_device("event::get_native"); }
event event::create_from_native(native_t&) { detail::needs_device("event::create_from_native"); }

}  // namespace ccl::inline v1
