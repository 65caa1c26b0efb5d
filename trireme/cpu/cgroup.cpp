#include "trireme/cpu/cgroup.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>

#include "trireme/base/error.h"
#include "trireme/cpu/affinity.h"

namespace trireme::cpu {

namespace {

using std::filesystem::path;

using Quota = std::optional<double>;
using Numbers = std::optional<std::vector<int>>;
using Bytes = std::optional<int64_t>;

template <class T>
std::optional<T> tighter(std::optional<T> a, std::optional<T> b) {
  return a && b ? std::min(*a, *b) : a ? a : b;
}

Numbers tighter(Numbers a, Numbers b) {
  if (!a || !b) return a ? a : b;
  std::vector<int> both;
  std::ranges::set_intersection(*a, *b, std::back_inserter(both));
  return both;
}

void tighten(CgroupLimits& limits, const CgroupLimits& more) {
  limits.quota = tighter(limits.quota, more.quota);
  limits.cpus = tighter(limits.cpus, more.cpus);
  limits.nodes = tighter(limits.nodes, more.nodes);
  limits.memory_bytes = tighter(limits.memory_bytes, more.memory_bytes);
}

Quota quotient(double quota, double period) { return quota > 0 && period > 0 ? Quota(quota / period) : std::nullopt; }

// "0-3,8"; an empty file names nothing and so limits nothing.
Numbers read_list(const path& file) {
  std::string text;
  if (!(std::ifstream(file) >> text)) return std::nullopt;
  try {
    std::vector<int> numbers = parse_cpu_list(text);
    std::ranges::sort(numbers);
    return numbers;
  } catch (const InvalidArgument&) {
    return std::nullopt;
  }
}

// "max" (v2), or a number near 2^63 (v1), is no limit.
Bytes read_bytes(const path& file) {
  int64_t bytes = 0;
  if (!(std::ifstream(file) >> bytes) || bytes <= 0 || bytes > (int64_t{1} << 60)) return std::nullopt;
  return bytes;
}

// "max 100000" or "150000 100000": microseconds of CPU time per period. A group without the controller lacks the files; those above
// it have them.
CgroupLimits limits_v2(const path& group) {
  std::ifstream file(group / "cpu.max");
  double quota = 0, period = 0;
  file >> quota >> period;
  return {quotient(quota, period), read_list(group / "cpuset.cpus.effective"), read_list(group / "cpuset.mems.effective"),
          read_bytes(group / "memory.max")};
}

// The same in two files; -1 means none.
CgroupLimits cpu_v1(const path& group) {
  std::ifstream quota_file(group / "cpu.cfs_quota_us"), period_file(group / "cpu.cfs_period_us");
  double quota = 0, period = 0;
  quota_file >> quota;
  period_file >> period;
  return {quotient(quota, period), {}, {}};
}

CgroupLimits cpuset_v1(const path& group) {
  return {{},
          tighter(read_list(group / "cpuset.cpus"), read_list(group / "cpuset.effective_cpus")),
          tighter(read_list(group / "cpuset.mems"), read_list(group / "cpuset.effective_mems"))};
}

CgroupLimits memory_v1(const path& group) { return {{}, {}, {}, read_bytes(group / "memory.limit_in_bytes")}; }

bool lists(const std::string& words, const std::string& word) { return ("," + words + ",").find("," + word + ",") != std::string::npos; }

// A hierarchy of groups and where its files are seen. A container may see only its own part: `top` is the group at `point`.
struct Mount {
  path point, top;
};

// A line of mountinfo: "32 31 0:29 /top /point rw,relatime [optional fields] - type source rw,cpu,cpuacct". `controller` is empty for v2.
// Without such a line, where systemd and Docker put it.
Mount find_mount(const path& root, const std::string& controller) {
  std::ifstream mounts(root / "proc/self/mountinfo");
  for (std::string line; std::getline(mounts, line);) {
    size_t dash = line.find(" - ");
    if (dash == std::string::npos) continue;
    std::istringstream before(line.substr(0, dash)), after(line.substr(dash + 3));
    std::string skipped, top, point, type, source, options;
    before >> skipped >> skipped >> skipped >> top >> point;
    after >> type >> source >> options;
    if (controller.empty() ? type == "cgroup2" : type == "cgroup" && lists(options, controller))
      return {root / path(point).relative_path(), top};
  }
  return {root / "sys/fs/cgroup" / controller, "/"};
}

// The group as a path below the mount's point. A group that lies elsewhere (its path is the host's, the mount a container's) is not seen:
// then only the point itself answers.
path below(const Mount& mount, const path& group) {
  path relative = group.lexically_normal().lexically_relative(mount.top.lexically_normal());
  if (relative.empty() || *relative.begin() == "..") relative = group.relative_path().lexically_normal();
  return relative == "." || (!relative.empty() && *relative.begin() == "..") ? path() : relative;
}

CgroupLimits tightest_upwards(const Mount& mount, const path& group, CgroupLimits (*limits_of)(const path&)) {
  CgroupLimits limits;
  for (path current = below(mount, group);; current = current.parent_path()) {
    tighten(limits, limits_of(mount.point / current));
    if (current.empty()) return limits;
  }
}

}  // namespace

CgroupLimits cgroup_limits(const path& root) {
  std::ifstream groups(root / "proc/self/cgroup");
  CgroupLimits limits;
  // A line is "id:controllers:path"; v2 has the id 0 and no controllers.
  for (std::string line; std::getline(groups, line);) {
    size_t first = line.find(':');
    size_t second = line.find(':', first == std::string::npos ? first : first + 1);
    if (second == std::string::npos) continue;
    std::string controllers = line.substr(first + 1, second - first - 1);
    path group = line.substr(second + 1);
    if (controllers.empty()) tighten(limits, tightest_upwards(find_mount(root, ""), group, limits_v2));
    if (lists(controllers, "cpu")) tighten(limits, tightest_upwards(find_mount(root, "cpu"), group, cpu_v1));
    if (lists(controllers, "cpuset")) tighten(limits, tightest_upwards(find_mount(root, "cpuset"), group, cpuset_v1));
    if (lists(controllers, "memory")) tighten(limits, tightest_upwards(find_mount(root, "memory"), group, memory_v1));
  }
  return limits;
}

}  // namespace trireme::cpu
