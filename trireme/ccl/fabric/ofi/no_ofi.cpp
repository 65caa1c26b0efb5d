// In place of the other files here where libfabric's headers were absent at build time.
#include "trireme/base/error.h"
#include "trireme/ccl/fabric/ofi/ofi_lane.h"

namespace trireme::ccl {
namespace {

[[noreturn]] void throw_unsupported() {
  throw Unsupported("TRIREME_FABRIC=ofi: this build has no libfabric; install libfabric-dev and build again, or use TRIREME_FABRIC=tcp");
}

}  // namespace

std::unique_ptr<BulkLane> connect_ofi_lane(Control&, const std::vector<int>&, Deadline) { throw_unsupported(); }

std::vector<std::string> ofi_providers() { throw_unsupported(); }

}  // namespace trireme::ccl
