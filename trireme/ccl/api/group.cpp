// Groups: operations collected per thread and submitted together.
#include <algorithm>
#include <exception>
#include <memory>
#include <span>
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
using collected = std::span<const std::shared_ptr<pending_operation>>;
thread_local group this_threads_group;

// Ranks may wait for the communicators of a group in different orders, and a thread may hold several ranks of one: while one is waited for, the others go
// on. One communicator alone is driven by who waits for it.
void see_to_progress(collected operations, std::exception_ptr& failure) {
  auto is_another = [&](const auto& operation) { return operation->communicator() != operations.front()->communicator(); };
  if (std::none_of(operations.begin(), operations.end(), is_another)) return;
  for (const auto& operation : operations) {
    try {
      operation->hand_over();
    } catch (...) {  // no worker is to be had
      if (!failure) failure = std::current_exception();
    }
  }
}

// All of them, also after one has failed: the other ranks count on those of other communicators.
void submit_all(collected operations, std::exception_ptr& failure) {
  for (size_t i = 0; i < operations.size(); ++i) {
    // It waits for what stands before it, so that must go on by itself.
    if (operations[i]->has_dependencies()) see_to_progress(operations.first(i), failure);
    try {
      operations[i]->submit();
    } catch (...) {
      operations[i]->refuse(std::current_exception());
      if (!failure) failure = std::current_exception();
    }
  }
}

// An operation whose event is gone has nobody else to wait for it, and its memory goes with the group.
void wait_for_unowned(collected operations, std::exception_ptr& failure) {
  for (const auto& operation : operations) {
    if (!operation->synchronous() && operation.use_count() != 1) continue;
    try {
      operation->wait();
    } catch (...) {
      if (!failure) failure = std::current_exception();
    }
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
    std::exception_ptr failure;
    detail::submit_all(operations, failure);
    detail::see_to_progress(operations, failure);
    detail::wait_for_unowned(operations, failure);
    if (failure) std::rethrow_exception(failure);
  });
}

}  // namespace ccl::inline v1
