// Reductions that a program makes at run time.
#pragma once

#include "oneapi/ccl/communicator.hpp"
#include "oneapi/ccl/config.h"
#include "oneapi/ccl/types.hpp"

namespace ccl {
inline namespace v1 {

// A sum in which each rank's elements are first multiplied by its *scalar, of type dtype, which is read now. Valid until
// reduction_destroy. Throws unsupported for a scalar on a device.
CCL_API void reduction_create_pre_mul_sum(reduction* rtype, void* scalar, datatype dtype, scalar_residence_type residence,
                                          const communicator& comm);
CCL_API void reduction_destroy(reduction rtype, const communicator& comm);

}  // namespace v1
}  // namespace ccl
