// The CPU quota that control groups put on this process, as containers set it.
#pragma once

#include <filesystem>
#include <optional>

namespace trireme::cpu {

// The tightest quota from the process's own group up to the root, in cores (1.5 is possible); nothing where there is none.
// Reads cgroup v2 and v1 below `root`, which a test may point elsewhere.
std::optional<double> cgroup_quota(const std::filesystem::path& root = "/");

}  // namespace trireme::cpu
