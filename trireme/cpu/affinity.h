// Cores this process may use, and pinning of a thread to one of them.
#pragma once

#include <string>
#include <vector>

namespace trireme::cpu {

// The logical CPUs in this process's affinity mask, ascending.
std::vector<int> allowed_cpus();

// How many cores the process may keep busy: the affinity mask, capped by the cgroup's CPU quota (v1 and v2).
int granted_cores();

// Pins the calling thread; false (and a warning in the log) when the kernel refuses.
bool pin_this_thread(int cpu);

// "3,4,7-9" or "auto" (=> empty). Throws InvalidArgument on anything else.
std::vector<int> parse_cpu_list(const std::string& text);

}  // namespace trireme::cpu
