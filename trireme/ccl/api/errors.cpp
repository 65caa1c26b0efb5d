#include "trireme/ccl/api/errors.h"

#include <new>

#include "oneapi/ccl/exception.hpp"
#include "trireme/base/error.h"

namespace ccl::inline v1 {
namespace {

string describe(const string& domain, const string& function, const string& info) {
  const bool both = domain.length() != 0 && function.length() != 0;
  const string where = domain + (both ? "/" : "") + function;
  return where + (where.length() != 0 && info.length() != 0 ? ": " : "") + info;
}

string describe(const char* what, const string& info) { return string(what) + (info.length() != 0 ? ": " : "") + info; }

}  // namespace

exception::exception(const string& info) : message_(info) {}
exception::exception(const char* info) : message_(info) {}
exception::exception(const string& domain, const string& function, const string& info)
    : message_(describe(domain, function, info)) {}
const char* exception::what() const noexcept { return message_.c_str(); }

invalid_argument::invalid_argument(const string& domain, const string& function, const string& info)
    : exception(domain, function, describe("invalid argument", info)) {}

host_bad_alloc::host_bad_alloc(const string& domain, const string& function)
    : exception(domain, function, "not enough memory on the host") {}

unimplemented::unimplemented(const string& domain, const string& function, const string& info)
    : exception(domain, function, describe("not implemented", info)) {}

unsupported::unsupported(const string& domain, const string& function, const string& info)
    : exception(domain, function, describe("not supported", info)) {}

namespace detail {

void needs_device(const char* function) {
  throw unsupported("ccl", function, "this library communicates host memory, and has neither devices nor SYCL objects");
}

void rethrow_translated(const char* function) {
  try {
    throw;
  } catch (const exception&) {
    throw;
  } catch (const trireme::InvalidArgument& error) {
    throw invalid_argument("ccl", function, error.what());
  } catch (const trireme::Unsupported& error) {
    throw unsupported("ccl", function, error.what());
  } catch (const trireme::Error& error) {
    throw exception("ccl", function, error.what());
  } catch (const std::bad_alloc&) {
    throw host_bad_alloc("ccl", function);
  }
}

}  // namespace detail
}  // namespace ccl::inline v1
