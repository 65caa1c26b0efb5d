#include "trireme/ccl/api/pending_operation.h"

#include <utility>

#include "oneapi/ccl/exception.hpp"
#include "trireme/base/error.h"
#include "trireme/base/log.h"

namespace ccl::inline v1::detail {

pending_operation::pending_operation(std::shared_ptr<core::Communicator> communicator, plan plan, bool synchronous,
                                     std::vector<std::shared_ptr<pending_operation>> dependencies)
    : communicator_(std::move(communicator)),
      plan_(std::move(plan)),
      synchronous_(synchronous),
      dependencies_(std::move(dependencies)) {
  // submit() checks as well, but in a group that would be too late for the caller to know which call was wrong.
  core::validate(plan_.operation, communicator_->rank(), communicator_->size());
}

pending_operation::pending_operation(std::shared_ptr<core::Communicator> communicator, plan plan, core::Request request)
    : communicator_(std::move(communicator)), plan_(std::move(plan)), request_(std::move(request)), submitted_(true) {}

const std::shared_ptr<pending_operation>& pending_operation::complete() {
  // Never destroyed: a program's static events may outlive the library's statics.
  static const auto& operation = *new std::shared_ptr<pending_operation>([] {
    auto* over = new pending_operation;
    over->submitted_ = over->settled_ = true;
    return over;
  }());
  return operation;
}

void pending_operation::submit() {
  for (const auto& dependency : std::exchange(dependencies_, {})) dependency->wait();
  request_ = communicator_->submit(std::move(plan_.operation));
  submitted_ = true;
}

bool pending_operation::test() {
  if (failure_) std::rethrow_exception(failure_);
  if (settled_) return true;
  if (!submitted_) return false;
  bool over = true;
  try {
    over = request_.test();
  } catch (...) {
    // settle() throws it again.
  }
  if (over) settle();
  return over;
}

void pending_operation::wait() {
  if (failure_) std::rethrow_exception(failure_);
  if (!submitted_) throw exception("ccl", "event", "its operation is in a group that has not ended: call group_end first");
  if (!settled_) settle();
}

void pending_operation::hand_over() {
  if (submitted_ && !settled_) request_.hand_over();
}

void pending_operation::abandon() noexcept {
  if (!submitted_ || settled_) return;
  try {
    wait();
  } catch (const std::exception& error) {
    trireme::log(trireme::LogLevel::error, trireme::str("an operation whose event is gone failed: ", error.what()));
  } catch (...) {
    trireme::log(trireme::LogLevel::error, "an operation whose event is gone failed");
  }
}

// Lets go of the communicator as well: an event may be kept for long, a static one until after the library's own statics are
// gone.
void pending_operation::settle() {
  settled_ = true;
  try {
    request_.wait();
    if (plan_.finish) plan_.finish();
  } catch (...) {
    failure_ = std::current_exception();
  }
  plan_ = {};
  request_ = {};
  communicator_.reset();
  if (failure_) std::rethrow_exception(failure_);
}

}  // namespace ccl::inline v1::detail
