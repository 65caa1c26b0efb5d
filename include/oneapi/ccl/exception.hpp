// What the API throws. invalid_argument and unsupported: nothing was sent, and everything is as it was before the call. Any
// other exception out of an operation or a communicator: the communicator is of no further use.
#pragma once

#include <exception>

#include "oneapi/ccl/config.h"
#include "oneapi/ccl/string.hpp"

namespace ccl {
inline namespace v1 {

class CCL_API exception : public std::exception {
 public:
  exception(const string& info = "");
  exception(const char* info);
  // Reads "domain/function: info".
  exception(const string& domain, const string& function, const string& info = "");
  const char* what() const noexcept override;

 private:
  string message_;
};

class CCL_API invalid_argument : public exception {
 public:
  invalid_argument(const string& domain, const string& function, const string& info = "");
};

class CCL_API host_bad_alloc : public exception {
 public:
  host_bad_alloc(const string& domain, const string& function);
};

class CCL_API unimplemented : public exception {
 public:
  unimplemented(const string& domain, const string& function, const string& info = "");
};

class CCL_API unsupported : public exception {
 public:
  unsupported(const string& domain, const string& function, const string& info = "");
};

namespace detail {

// Throws unsupported: `function` was asked for something that only exists on a device.
[[noreturn]] CCL_API void needs_device(const char* function);

}  // namespace detail
}  // namespace v1
}  // namespace ccl
