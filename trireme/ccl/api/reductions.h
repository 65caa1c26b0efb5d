// The API's reductions as the library carries them out.
#pragma once

#include "oneapi/ccl/types.hpp"
#include "trireme/ccl/api/pending_operation.h"

namespace ccl::inline v1::detail {

// What a call of allreduce, reduce or reduce_scatter said about its reduction.
struct reduction_request {
  reduction rtype;
  datatype dtype;
  reduction_fn function;  // null: none was set
  string_class match_id;
};

// Completes a plan of which kind, buffers, counts (in elements of request.dtype) and root are set.
// Throws InvalidArgument for a reduction that does not exist, or that the type does not have.
void plan_reduction(plan& plan, const reduction_request& request, int rank, int size);

}  // namespace ccl::inline v1::detail
