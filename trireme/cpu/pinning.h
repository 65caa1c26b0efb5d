// Looks at this process for a plan, and carries the plan out.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "trireme/cpu/plan.h"

namespace trireme::cpu {

// This machine, this process's grant and the user's settings, for a rank of which `local_size` run on this host and `world_size` in all.
// The masks of the other ranks are left to the caller, who can ask them. What apply() did before does not count as the user's.
PlanInput observe(int local_rank, int local_size, int world_size);

// Sets masks and memory policy, and says in one line what was chosen: on local rank 0 at any log level but error, on others at info. What the
// kernel refuses is a warning and no error: the run is slower, not wrong. To be called before compute threads start; threads that run
// already are moved too, unless they have a mask of their own. A later plan takes the place of an earlier one. Memory policy holds for
// the calling thread and those it starts.
//
// The caller sets the number of its compute threads to plan.compute_threads, where that is not 0.
void apply(const Plan& plan, int local_rank);

// The plan in force, for those who start the workers; nothing before the first apply().
std::optional<Plan> applied_plan();

// The mask of this process before the first plan that pinned it; without one, the calling thread's.
std::vector<int> cpus_before_pinning();

// Parts of observe(), with a root that a test may point elsewhere.
// Is a mask narrower than what the machine and the cpuset grant? CPUs that the kernel keeps isolated are granted to nobody by default.
bool mask_was_set(const std::vector<int>& mask, const Topology& topology, const std::filesystem::path& root = "/");

}  // namespace trireme::cpu
