#include "trireme/cpu/cgroup.h"

#include <algorithm>
#include <fstream>
#include <string>

namespace trireme::cpu {

namespace {

using std::filesystem::path;

using Quota = std::optional<double>;

Quota tighter(Quota a, Quota b) { return a && b ? std::min(*a, *b) : a ? a : b; }

// v2: "max 100000" or "150000 100000": microseconds of CPU time per period.
Quota quota_v2(const path& group) {
  std::ifstream file(group / "cpu.max");
  double quota, period;
  if (!(file >> quota >> period) || quota <= 0 || period <= 0) return std::nullopt;
  return quota / period;
}

// v1: the same in two files; -1 means none.
Quota quota_v1(const path& group) {
  std::ifstream quota_file(group / "cpu.cfs_quota_us"), period_file(group / "cpu.cfs_period_us");
  double quota, period;
  if (!(quota_file >> quota) || !(period_file >> period) || quota <= 0 || period <= 0) return std::nullopt;
  return quota / period;
}

// A quota binds every group below it, so the tightest one on the way up counts. In a container the group's path may be the
// host's, which does not exist below the container's mount: then only the mount itself answers.
Quota tightest_upwards(const path& mount, path group, Quota (*quota_of)(const path&)) {
  Quota result;
  for (group = group.relative_path().lexically_normal();; group = group.parent_path()) {
    result = tighter(result, quota_of(mount / group));
    if (group.empty()) return result;
  }
}

bool lists_cpu(const std::string& controllers) { return ("," + controllers + ",").find(",cpu,") != std::string::npos; }

}  // namespace

std::optional<double> cgroup_quota(const path& root) {
  const path mount = root / "sys/fs/cgroup";
  std::ifstream groups(root / "proc/self/cgroup");
  Quota result;
  // A line is "id:controllers:path"; v2 has the id 0 and no controllers.
  for (std::string line; std::getline(groups, line);) {
    size_t first = line.find(':');
    size_t second = line.find(':', first == std::string::npos ? first : first + 1);
    if (second == std::string::npos) continue;
    std::string controllers = line.substr(first + 1, second - first - 1);
    path group = line.substr(second + 1);
    if (controllers.empty())
      result = tighter(result, tightest_upwards(mount, group, quota_v2));
    else if (lists_cpu(controllers))
      result = tighter(result, tightest_upwards(mount / "cpu", group, quota_v1));
  }
  return result;
}

}  // namespace trireme::cpu
