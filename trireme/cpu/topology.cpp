#include "trireme/cpu/topology.h"

#include <hwloc.h>

#include <algorithm>
#include <cerrno>
#include <memory>

#include "trireme/base/error.h"

namespace trireme::cpu {

namespace {

using Handle = std::unique_ptr<hwloc_topology, void (*)(hwloc_topology_t)>;

Handle new_handle() {
  hwloc_topology_t topology = nullptr;
  if (hwloc_topology_init(&topology) != 0) throw IoError(errno_message("hwloc_topology_init", errno));
  return {topology, hwloc_topology_destroy};
}

std::vector<int> cpus_of(hwloc_obj_t object) {
  std::vector<int> cpus;
  for (int cpu = hwloc_bitmap_first(object->cpuset); cpu >= 0; cpu = hwloc_bitmap_next(object->cpuset, cpu)) cpus.push_back(cpu);
  return cpus;
}

// Where a core has several local nodes (high-bandwidth or far memory beside DRAM), the first one is DRAM.
Core describe(hwloc_topology_t topology, hwloc_obj_t object) {
  hwloc_obj_t package = hwloc_get_ancestor_obj_by_type(topology, HWLOC_OBJ_PACKAGE, object);
  return {cpus_of(object), package ? static_cast<int>(package->logical_index) : 0, hwloc_bitmap_first(object->nodeset)};
}

// A machine that does not tell its cores (some virtual ones) has one per CPU.
Topology describe_all(hwloc_topology_t topology) {
  hwloc_obj_type_t type = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_CORE) > 0 ? HWLOC_OBJ_CORE : HWLOC_OBJ_PU;
  Topology result;
  for (hwloc_obj_t object = nullptr; (object = hwloc_get_next_obj_by_type(topology, type, object)) != nullptr;)
    result.cores.push_back(describe(topology, object));
  // hwloc orders cores by their first hardware thread within a parent; only sockets could still be torn apart, by nodes across them.
  std::ranges::stable_sort(result.cores, {}, [](const Core& core) { return std::pair(core.socket, core.node); });
  return result;
}

}  // namespace

Topology read_topology() {
  Handle handle = new_handle();
  // What is granted is our own question, asked elsewhere. hwloc's x86 part would move this thread over every CPU to ask it by cpuid;
  // Linux's files say the same.
  hwloc_topology_set_flags(handle.get(), HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED);
  hwloc_topology_set_components(handle.get(), HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, "x86");
  if (hwloc_topology_load(handle.get()) != 0) throw IoError(errno_message("hwloc cannot read the machine's topology", errno));
  return describe_all(handle.get());
}

Topology synthetic_topology(const std::string& description) {
  Handle handle = new_handle();
  if (hwloc_topology_set_synthetic(handle.get(), description.c_str()) != 0 || hwloc_topology_load(handle.get()) != 0)
    throw InvalidArgument(str("'", description, "' is no topology that hwloc can make"));
  return describe_all(handle.get());
}

std::vector<Core> cores_within(const Topology& topology, const std::vector<int>& cpus) {
  std::vector<Core> cores;
  std::vector<int> unknown = cpus;
  for (Core core : topology.cores) {
    std::erase_if(unknown, [&](int cpu) { return std::ranges::count(core.cpus, cpu) > 0; });
    std::erase_if(core.cpus, [&](int cpu) { return std::ranges::count(cpus, cpu) == 0; });
    if (!core.cpus.empty()) cores.push_back(std::move(core));
  }
  for (int cpu : unknown) cores.push_back({{cpu}, -1, -1});
  return cores;
}

}  // namespace trireme::cpu
