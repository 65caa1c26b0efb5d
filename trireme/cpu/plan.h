// Which threads a rank should run, and where: from the machine, what is granted, the ranks beside it and what the user has said.
// Nothing is read and nothing is set here; pinning.h does both. The rules, with examples, are in docs/threads.md.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "trireme/cpu/topology.h"
#include "trireme/cpu/user_settings.h"

namespace trireme::cpu {

struct PlanInput {
  Topology topology;
  std::vector<int> granted;      // CPUs in this process's mask, ascending
  bool mask_was_set = false;     // the mask is narrower than what the cpuset grants: a user or a launcher has set it
  std::optional<double> quota;   // of the control group, in cores; the ranks of the host share it
  std::optional<std::vector<int>> granted_nodes;  // NUMA nodes that the cpuset grants; nothing: all
  bool memory_policy_was_set = false;             // numactl --membind and the like
  int local_rank = 0, local_size = 1;             // among the ranks of this host
  int world_size = 1;
  // The masks of the host's ranks by local rank, where they are known. Empty: taken to be as this one's.
  std::vector<std::vector<int>> masks;
  UserSettings user;
};

struct Plan {
  int compute_threads = 0;        // 0: left as it is
  bool pin = false;               // false: no mask and no memory policy is to be changed
  std::vector<int> compute_cpus;  // with pin: the process's mask. One hardware thread a core, unless the user wants more threads than cores
  int workers = 0;
  std::vector<int> worker_cpus;   // one per worker; empty: they run where the process may
  std::vector<int> memory_nodes;  // with pin: the nodes of its cores
  bool prefer_node = false;       // memory is to come from memory_nodes[0], while there is some
  std::string sentence;           // what was chosen and why, for the log
};

// Throws InvalidArgument where ranks and sizes do not fit together.
Plan make_plan(const PlanInput& input);

}  // namespace trireme::cpu
