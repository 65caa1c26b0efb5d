// Trireme's errors as torch's: what a Python program can catch.
#pragma once

#include <exception>
#include <string>

namespace trireme::torch_ext {

// The same failure as an exception that torch translates into Python:
//   PeerLost, IoError            c10::DistNetworkError
//   Timeout, Mismatch, Aborted   c10::DistBackendError
//   InvalidArgument              c10::ValueError
//   Unsupported                  c10::NotImplementedError
// Anything else, a torch error from a store among it, stays as it is. Null stays null.
std::exception_ptr as_torch_error(const std::exception_ptr& error);

// As above, for a group that did not come up: a store that did not answer is a c10::DistStoreError.
std::exception_ptr as_torch_connect_error(const std::exception_ptr& error);

// Runs `body`; what it throws leaves as torch's error.
template <class Body>
auto with_torch_errors(Body&& body) {
  try {
    return body();
  } catch (...) {
    std::rethrow_exception(as_torch_error(std::current_exception()));
  }
}

}  // namespace trireme::torch_ext
