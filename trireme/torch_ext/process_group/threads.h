// The threads of a process that trains: how many, and on which cores. The rules are in docs/threads.md.
#pragma once

#include "trireme/ccl/comm/communicator.h"

namespace trireme::torch_ext {

// Collective. The first group of a process settles its threads, from what all ranks of its host were granted; later ones change nothing. A group of some
// ranks, or of ranks that are kept from sharing memory, goes by the launcher's word of how many share the host. Ranks that share a process are left
// alone: no plan would be theirs.
void settle_threads(ccl::Communicator& communicator);

}  // namespace trireme::torch_ext
