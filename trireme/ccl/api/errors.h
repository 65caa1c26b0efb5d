// The one place where the library's errors become the API's.
#pragma once

#include <utility>

namespace ccl::inline v1::detail {

// Within a catch block: throws what is being handled as the exception that the API promises. `function` is the API's.
// What a program's own callbacks throw passes through.
[[noreturn]] void rethrow_translated(const char* function);

template <class Body>
decltype(auto) translating(const char* function, Body&& body) {
  try {
    return std::forward<Body>(body)();
  } catch (...) {
    rethrow_translated(function);
  }
}

}  // namespace ccl::inline v1::detail
