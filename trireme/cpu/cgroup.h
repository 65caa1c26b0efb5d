// What control groups leave to this process, as containers and batch systems set them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

namespace trireme::cpu {

// Nothing where there is no such limit, or none that can be read.
struct CgroupLimits {
  std::optional<double> quota;           // CPU time in cores: 1.5 is possible
  std::optional<std::vector<int>> cpus;  // of the cpuset, ascending
  std::optional<std::vector<int>> nodes; // NUMA nodes whose memory the cpuset grants, ascending
  std::optional<int64_t> memory_bytes = {};
};

// A group's limits bind all groups below it: the tightest from the process's own group up to the root count. Reads cgroup v2 and v1, also
// side by side, below `root`, which a test may point elsewhere.
CgroupLimits cgroup_limits(const std::filesystem::path& root = "/");

inline std::optional<double> cgroup_quota(const std::filesystem::path& root = "/") { return cgroup_limits(root).quota; }

}  // namespace trireme::cpu
