// Trireme's errors as torch's: what a Python program can catch.
#pragma once

#include <cstdint>
#include <exception>
#include <string>
#include <vector>

namespace trireme::torch_ext {

// What the ranks of a group are called in the world, for messages, which have their numbers in the group.
class GroupRanks {
 public:
  // `global` by rank of the group; empty: as in the world.
  GroupRanks(std::string group, std::vector<uint64_t> global) : group_(std::move(group)), global_(std::move(global)) {}

  // The text, and what is said of its numbers where the world has others: " (in group 3, rank 1 is global rank 5)".
  std::string explain(const std::string& text) const;

 private:
  std::string group_;
  std::vector<uint64_t> global_;
};

// The same failure as an exception that torch translates into Python:
//   PeerLost, IoError            c10::DistNetworkError
//   Timeout, Mismatch, Aborted   c10::DistBackendError
//   InvalidArgument              c10::ValueError
//   Unsupported                  c10::NotImplementedError
// Anything else, a torch error from a store among it, stays as it is. Null stays null.
std::exception_ptr as_torch_error(const std::exception_ptr& error, const GroupRanks& ranks);

// As above, for a group that did not come up: a store that did not answer is a c10::DistStoreError.
std::exception_ptr as_torch_connect_error(const std::exception_ptr& error, const GroupRanks& ranks);

// Runs `body`; what it throws leaves as torch's error.
template <class Body>
auto with_torch_errors(const GroupRanks& ranks, Body&& body) {
  try {
    return body();
  } catch (...) {
    std::rethrow_exception(as_torch_error(std::current_exception(), ranks));
  }
}

}  // namespace trireme::torch_ext
