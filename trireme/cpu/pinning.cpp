#include "trireme/cpu/pinning.h"

#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <fstream>
#include <mutex>

#include "trireme/base/error.h"
#include "trireme/base/log.h"
#include "trireme/cpu/affinity.h"
#include "trireme/cpu/cgroup.h"

namespace trireme::cpu {

namespace {

// What has been done to this process. Never destroyed: workers may still ask while it exits.
struct State {
  std::mutex mutex;
  std::optional<Plan> plan;
  std::optional<std::vector<int>> mask_before;
  bool memory_is_ours = false;
};

State& state() {
  static State& state = *new State;
  return state;
}

// glibc has no wrappers for these; libnuma would be one more library for two calls.
bool set_memory_policy(int mode, int node) {
  constexpr size_t kBits = sizeof(unsigned long) * CHAR_BIT;
  if (mode == MPOL_DEFAULT) return syscall(SYS_set_mempolicy, MPOL_DEFAULT, nullptr, 0UL) == 0;
  std::vector<unsigned long> mask(static_cast<size_t>(node) / kBits + 1);
  mask.back() = 1UL << (static_cast<size_t>(node) % kBits);
  // The kernel reads one bit less than it is told.
  return syscall(SYS_set_mempolicy, mode, mask.data(), mask.size() * kBits + 1) == 0;
}

bool memory_policy_was_set() {
  int mode = MPOL_DEFAULT;
  return syscall(SYS_get_mempolicy, &mode, nullptr, 0UL, nullptr, 0UL) == 0 && mode != MPOL_DEFAULT;
}

// All threads with the calling thread's mask get another. Those with a mask of their own were placed by somebody else.
bool move_threads(const std::vector<int>& cpus) {
  const std::vector<int> before = allowed_cpus();
  if (!set_allowed_cpus(cpus)) return false;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) {
    auto thread = static_cast<pid_t>(std::atoi(entry.path().filename().c_str()));
    try {
      if (allowed_cpus(thread) == before) set_allowed_cpus(cpus, thread);
    } catch (const IoError&) {  // it has ended meanwhile
    }
  }
  return true;
}

void place_threads(const Plan& plan, State& state) {
  if (!plan.pin && !state.mask_before) return;
  if (!state.mask_before) state.mask_before = allowed_cpus();
  const std::vector<int>& cpus = plan.pin ? plan.compute_cpus : *state.mask_before;
  if (!move_threads(cpus)) log(LogLevel::warn, errno_message(str("cannot run on CPUs ", format_cpu_list(cpus), "; threads stay where they are"), errno));
}

// Containers often forbid it (Docker does by default). Then the kernel's own way stands: memory comes from where a thread runs when it
// first touches it, and that is the same node as long as the node has some.
void place_memory(const Plan& plan, State& state) {
  if (!plan.prefer_node && !state.memory_is_ours) return;
  bool done = set_memory_policy(plan.prefer_node ? MPOL_PREFERRED : MPOL_DEFAULT, plan.prefer_node ? plan.memory_nodes[0] : 0);
  if (!done) log(LogLevel::info, errno_message("memory is not bound to a node; it comes from where it is first touched: set_mempolicy", errno));
  state.memory_is_ours = done && plan.prefer_node;
}

std::vector<int> isolated_cpus(const std::filesystem::path& root) {
  std::string text;
  if (!(std::ifstream(root / "sys/devices/system/cpu/isolated") >> text)) return {};
  try {
    return parse_cpu_list(text);
  } catch (const InvalidArgument&) {
    return {};
  }
}

}  // namespace

bool mask_was_set(const std::vector<int>& mask, const Topology& topology, const std::filesystem::path& root) {
  const auto granted = cgroup_limits(root).cpus;
  const std::vector<int> isolated = isolated_cpus(root);
  auto is_granted = [&](int cpu) { return std::ranges::count(isolated, cpu) == 0 && (!granted || std::ranges::count(*granted, cpu) > 0); };
  auto is_missing = [&](int cpu) { return is_granted(cpu) && std::ranges::count(mask, cpu) == 0; };
  return std::ranges::any_of(topology.cores, [&](const Core& core) { return std::ranges::any_of(core.cpus, is_missing); });
}

PlanInput observe(int local_rank, int local_size, int world_size) {
  PlanInput input;
  input.user = read_user_settings();
  input.local_rank = local_rank;
  input.local_size = local_size;
  input.world_size = world_size;
  input.granted = cpus_before_pinning();
  if (!input.user.pin) return input;  // nothing else will be asked
  input.topology = read_topology();
  input.mask_was_set = mask_was_set(input.granted, input.topology);
  CgroupLimits limits = cgroup_limits();
  input.quota = limits.quota;
  input.granted_nodes = limits.nodes;
  std::lock_guard lock(state().mutex);
  input.memory_policy_was_set = !state().memory_is_ours && memory_policy_was_set();
  return input;
}

void apply(const Plan& plan, int local_rank) {
  State& state = cpu::state();
  std::lock_guard lock(state.mutex);
  place_threads(plan, state);
  place_memory(plan, state);
  state.plan = plan;
  if (local_rank == 0) announce(plan.sentence);
  else log(LogLevel::info, plan.sentence);
}

std::optional<Plan> applied_plan() {
  std::lock_guard lock(state().mutex);
  return state().plan;
}

std::vector<int> cpus_before_pinning() {
  std::lock_guard lock(state().mutex);
  return state().mask_before ? *state().mask_before : allowed_cpus();
}

}  // namespace trireme::cpu
