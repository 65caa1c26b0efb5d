// An operation of a program, from the call to the end of its event.
#pragma once

#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <vector>

#include "trireme/ccl/comm/communicator.h"
#include "trireme/ccl/operation.h"

namespace ccl::inline v1::detail {

// The library behind the API, whose namespace would otherwise be confused with this one.
namespace core = ::trireme::ccl;

// How the library carries out an operation.
struct plan {
  core::Operation operation;
  // What is left to do when it is complete; may be empty.
  std::function<void()> finish;
  // Memory that it needs until then.
  std::shared_ptr<std::byte[]> scratch;
};

// Owned by its event and, until group_end, by the group it was called in. One thread at a time.
class pending_operation {
 public:
  // Of a group: submitted when that ends.
  pending_operation(std::shared_ptr<core::Communicator> communicator, plan plan, bool synchronous,
                    std::vector<std::shared_ptr<pending_operation>> dependencies);
  // Under way already.
  pending_operation(std::shared_ptr<core::Communicator> communicator, plan plan, core::Request request);

  // One that is over, for all that were before they had an event.
  static const std::shared_ptr<pending_operation>& complete();

  bool synchronous() const { return synchronous_; }
  // Null once it is over and somebody has learnt how.
  const core::Communicator* communicator() const { return communicator_.get(); }

  bool has_dependencies() const { return !dependencies_.empty(); }
  // Waits for the dependencies. Throws what they or the submission failed with.
  void submit();
  // Will not be submitted, because of `why`.
  void refuse(std::exception_ptr why) { failure_ = std::move(why); }

  // Both throw what the operation failed with. Until it is submitted, test() is false and wait() throws.
  bool test();
  void wait();
  // A worker carries it on, also where nobody waits.
  void hand_over();
  // Waits if nobody has, and logs what it failed with.
  void abandon() noexcept;

 private:
  pending_operation() = default;
  void settle();

  std::shared_ptr<core::Communicator> communicator_;
  plan plan_;
  bool synchronous_ = false;
  std::vector<std::shared_ptr<pending_operation>> dependencies_;
  core::Request request_;
  bool submitted_ = false;
  bool settled_ = false;  // it is over, and somebody has learnt how
  std::exception_ptr failure_;
};

// Whether this thread is between group_start and group_end, and what to do with its operations then.
bool in_group();
void collect(std::shared_ptr<pending_operation> operation);

}  // namespace ccl::inline v1::detail
