// Divides cores among the ranks of a host, along the machine's boundaries where that is fair.
#pragma once

#include <vector>

#include "trireme/cpu/topology.h"

namespace trireme::cpu {

// One share per rank, in rank order; together they are `cores`, which has the topology's order and at least one core a rank.
//
// Sockets are divided first, then the nodes (sub-NUMA clusters) of a socket, then the cores of a node. A rank gets whole parts while
// there are enough of them, and several ranks divide a part. Ranks of a job do equal work and wait for the one with the fewest cores. So the
// boundaries count only as long as the smallest share is at least four fifths of an equal one; else the cores are dealt out in equal
// runs, and a rank may lie across a boundary.
std::vector<std::vector<Core>> divide(const std::vector<Core>& cores, int ranks);

}  // namespace trireme::cpu
