// Groups: operations collected per thread and submitted together.
#include <utility>
#include <vector>

#include "oneapi/ccl/operations.hpp"
#include "trireme/ccl/api/errors.h"
#include "trireme/ccl/api/pending_operation.h"

namespace ccl::inline v1 {
namespace detail {
namespace {

struct group {
  int depth = 0;
  std::vector<std::shared_ptr<pending_operation>> operations;
};
thread_local group this_threads_group;

// Those that come after a failed one are not submitted, and fail with it.
void submit_all(const std::vector<std::shared_ptr<pending_operation>>& operations) {
  std::exception_ptr failure;
  for (const auto& operation : operations) {
    if (failure) {
      operation->refuse(failure);
      continue;
    }
    try {
      operation->submit();
    } catch (...) {
      failure = std::current_exception();
      operation->refuse(failure);
    }
  }
  if (failure) std::rethrow_exception(failure);
}

// An operation whose event is gone has nobody else to wait for it.
void wait_for_unowned(const std::vector<std::shared_ptr<pending_operation>>& operations) {
  for (const auto& operation : operations) {
    if (operation->synchronous() || operation.use_count() == 1) operation->wait();
  }
}

}  // namespace

bool in_group() { return this_threads_group.depth > 0; }
void collect(std::shared_ptr<pending_operation> operation) { this_threads_group.operations.push_back(std::move(operation)); }

}  // namespace detail

void group_start() { ++detail::this_threads_group.depth; }

void group_end() {
  detail::translating("group_end", [] {
    detail::group& group = detail::this_threads_group;
    if (group.depth == 0) throw exception("ccl", "group_end", "no group_start came before it");
    if (--group.depth > 0) return;
    const auto operations = std::exchange(group.operations, {});
    detail::submit_all(operations);
    detail::wait_for_unowned(operations);
  });
}

}  // namespace ccl::inline v1
