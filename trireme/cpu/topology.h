// The machine's cores: which hardware threads make one, and in which socket and NUMA node it lies. Plain data, read with hwloc.
#pragma once

#include <string>
#include <vector>

namespace trireme::cpu {

// Numbers are the kernel's, but for the socket, which is counted from 0. A sub-NUMA cluster is a node of its own.
struct Core {
  std::vector<int> cpus;  // hardware threads, ascending; never empty
  int socket = 0;
  int node = 0;
  bool operator==(const Core&) const = default;
};

// Neighbours in the machine are neighbours here: the cores of a socket, and in it those of a node, lie side by side.
struct Topology {
  std::vector<Core> cores;
};

// This machine, all online CPUs, granted to this process or not. Reads files below /sys; throws IoError where hwloc cannot.
Topology read_topology();

// A made-up machine in hwloc's words: "pack:2 numa:1 core:24 pu:2". Throws InvalidArgument on what hwloc does not understand.
Topology synthetic_topology(const std::string& description);

// The cores with only those hardware threads that are in `cpus`; a core of which none is left is dropped. A CPU that the topology does
// not know becomes a core of its own after all others, on node -1: what is granted is never lost.
std::vector<Core> cores_within(const Topology& topology, const std::vector<int>& cpus);

}  // namespace trireme::cpu
