// The library itself: its start, its version, the element types it knows.
#pragma once

#include "oneapi/ccl/attributes.hpp"
#include "oneapi/ccl/config.h"
#include "oneapi/ccl/types.hpp"

namespace ccl {
inline namespace v1 {

// Warns about variables in the environment that mean nothing. Nothing else needs it to have been called.
CCL_API void init(const init_attr& attr = default_init_attr);

CCL_API library_version get_library_version();

// A type of the program's own: datatype_attr_id::size bytes that are moved as they are, and reduced by a reduction_fn.
// Threads may register and deregister at the same time.
CCL_API datatype register_datatype(const datatype_attr& attr);
CCL_API void deregister_datatype(datatype dtype);
CCL_API size_t get_datatype_size(datatype dtype);

}  // namespace v1
}  // namespace ccl
