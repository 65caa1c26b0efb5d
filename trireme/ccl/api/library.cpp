#include "oneapi/ccl/library.hpp"

#include "oneapi/ccl/device.hpp"
#include "trireme/base/env.h"
#include "trireme/ccl/api/errors.h"

namespace ccl::inline v1 {

allgather_attr default_allgather_attr;
allgatherv_attr default_allgatherv_attr;
allreduce_attr default_allreduce_attr;
alltoall_attr default_alltoall_attr;
alltoallv_attr default_alltoallv_attr;
barrier_attr default_barrier_attr;
broadcast_attr default_broadcast_attr;
gather_attr default_gather_attr;
pt2pt_attr default_pt2pt_attr;
reduce_attr default_reduce_attr;
reduce_scatter_attr default_reduce_scatter_attr;
scatter_attr default_scatter_attr;
init_attr default_init_attr;
kvs_attr default_kvs_attr;
comm_attr default_comm_attr;
comm_split_attr default_comm_split_attr;
stream default_stream;

library_version ccl_empty_attr::version = detail::this_library();

const library_version& detail::this_library() {
  static const library_version version = {CCL_MAJOR_VERSION,
                                          CCL_MINOR_VERSION,
                                          CCL_UPDATE_VERSION,
                                          CCL_PRODUCT_STATUS,
                                          CCL_PRODUCT_BUILD_DATE,
                                          CCL_PRODUCT_FULL,
                                          "empty"};
  return version;
}

library_version get_library_version() { return detail::this_library(); }

void init(const init_attr&) {
  detail::translating("init", [] { trireme::env::warn_about_unknown(); });
}

}  // namespace ccl::inline v1
