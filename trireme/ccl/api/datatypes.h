// The API's element types: the library's own, and those that the program registered, which the library moves as bytes.
#pragma once

#include <cstddef>

#include "oneapi/ccl/types.hpp"
#include "trireme/ccl/types.h"

namespace ccl::inline v1::detail {

bool is_registered(datatype dtype);
// Throws InvalidArgument for a type that does not exist.
size_t bytes_of(datatype dtype);

// As the library counts them.
struct elements {
  trireme::ccl::DataType type;
  size_t count;
};
elements elements_of(datatype dtype, size_t count);

// Throws InvalidArgument naming the argument when the product does not fit.
size_t multiply(const char* argument, size_t a, size_t b);

}  // namespace ccl::inline v1::detail
