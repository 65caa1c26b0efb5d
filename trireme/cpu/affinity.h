// Cores this process may use, and pinning of a thread to one of them.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace trireme::cpu {

// The logical CPUs in a thread's affinity mask, ascending; by default the calling one's. Throws IoError where there is no such thread.
std::vector<int> allowed_cpus(pid_t thread = 0);

// How many CPUs this process may keep busy, or together with others of this host: the mask it had before Trireme placed it and the others'
// masks, capped by the cgroup's CPU quota (v1 and v2). A process that has ended counts nothing.
int granted_cores(const std::vector<pid_t>& others = {});

// Gives a thread a mask, by default the calling one. False where the kernel refuses; errno says why.
bool set_allowed_cpus(const std::vector<int>& cpus, pid_t thread = 0);

// Pins the calling thread; false (and a warning in the log) when the kernel refuses.
bool pin_this_thread(int cpu);

// "3,4,7-9" or "auto" (=> empty). Throws InvalidArgument on anything else.
std::vector<int> parse_cpu_list(const std::string& text);

// The inverse, for ascending numbers, in the kernel's own form: "3-4,7-9".
std::string format_cpu_list(const std::vector<int>& cpus);

}  // namespace trireme::cpu
