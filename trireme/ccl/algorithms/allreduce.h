// The algorithms of allreduce. All give the same bits but for ring, whose order of summation differs from shard to shard.
#pragma once

#include "trireme/ccl/algorithms/op_context.h"

namespace trireme::ccl {

// Two ranks of one host through slots (see way.h): each copies to its slots and reduces out of the other's. n/slot steps, n bytes copied, n read.
Task allreduce_whole_staged(OpContext& run);
// One host: each reduces its part and hands it out, 2 steps, n (P-1)/P bytes read and as many written. Several: reduce-scatter in the host,
// lanes between hosts, allgather in the host.
Task allreduce_hierarchical(OpContext& run);
// Several hosts, small: the first rank of each host reduces, exchanges and hands out.
Task allreduce_leaders(OpContext& run);
// All ranks in one ring, wherever they are: 2 (P-1) steps, 2 n (P-1)/P bytes. The textbook's way, to compare with.
Task allreduce_ring(OpContext& run);

}  // namespace trireme::ccl
