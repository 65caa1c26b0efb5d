#include "trireme/cpu/plan.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "trireme/base/error.h"
#include "trireme/cpu/affinity.h"
#include "trireme/cpu/divide.h"

namespace trireme::cpu {

namespace {

// A core for communication costs a rank of c cores 1/c of its compute. Without it a worker takes half of one core for the fraction f of the
// step in which it is busy, and the other threads wait for that core: f. With f = 1/8, which a backward pass that hides its allreduce easily
// has, eight cores are the break-even. A second hardware thread takes about half as much from its core, so that with SMT the break-even is
// at sixteen. See docs/threads.md.
constexpr int kCoresPerWorker = 8;
constexpr int kCoresPerWorkerSmt = 16;

bool has(const std::vector<int>& cpus, int cpu) { return std::ranges::binary_search(cpus, cpu); }

bool overlap(const std::vector<int>& a, const std::vector<int>& b) {
  return std::ranges::any_of(a, [&](int cpu) { return has(b, cpu); });
}

int count_of(const std::vector<Core>& cores) { return static_cast<int>(cores.size()); }

int hardware_threads(const std::vector<Core>& cores) {
  int count = 0;
  for (const Core& core : cores) count += static_cast<int>(core.cpus.size());
  return count;
}

bool has_smt(const Core& core) { return core.cpus.size() > 1; }

template <class... Args>
std::string plural(int count, const Args&... what) {
  return str(count, " ", what..., count == 1 ? "" : "s");
}

// The ranks that have this one's mask, and this one's place among them.
struct Sharers {
  int count = 1, place = 0;
  bool tangled = false;  // another rank's mask covers a part of this one's
};

Sharers find_sharers(const PlanInput& input) {
  if (input.masks.empty()) return {input.local_size, input.local_rank, false};
  Sharers sharers{0, 0, false};
  for (int rank = 0; rank < input.local_size; ++rank) {
    const auto& mask = input.masks[static_cast<size_t>(rank)];
    if (mask != input.granted) {
      sharers.tangled |= overlap(mask, input.granted);
      continue;
    }
    if (rank < input.local_rank) ++sharers.place;
    ++sharers.count;
  }
  return sharers;
}

// CPUs that CCL_WORKER_AFFINITY gives to workers, whichever rank's: no compute thread goes there. The first hardware thread stands for the
// core, a later one only for itself.
std::vector<Core> without_workers_cpus(std::vector<Core> cores, const std::vector<int>& listed) {
  auto is_listed = [&](int cpu) { return std::ranges::count(listed, cpu) > 0; };
  std::erase_if(cores, [&](const Core& core) { return is_listed(core.cpus.front()); });
  for (Core& core : cores) std::erase_if(core.cpus, is_listed);
  return cores;
}

// Makes one plan: what the rank has, then who computes, then who communicates, then the sentence.
class Planner {
 public:
  explicit Planner(const PlanInput& input) : in_(input), sharers_(find_sharers(input)) {}
  Plan make();

 private:
  void find_share();
  std::string why_not_pinned() const;
  double fair_share_of_tangled() const;
  void choose_workers();
  void choose_threads();
  void place();
  std::string describe() const;
  std::string describe_threads() const;

  bool quota_binds() const { return in_.quota && *in_.quota < static_cast<double>(in_.granted.size()); }
  int quota_share() const { return std::max(1, static_cast<int>(std::floor(*in_.quota / in_.local_size))); }

  const PlanInput& in_;
  const Sharers sharers_;
  std::vector<Core> all_;    // all cores that the mask grants and no worker was given
  std::vector<Core> share_;  // with pin: those of this rank
  int cores_ = 0;            // how many it may keep busy
  int cap_ = 0;              // the most compute threads it may have
  bool spare_ = false;       // there are cores to spare for the workers
  bool near_memory_ = false; // it lies on several nodes, but not on all
  std::string why_not_;
  Plan plan_;
};

std::string Planner::why_not_pinned() const {
  if (!in_.user.placed_by.empty()) return str(in_.user.placed_by, " is set");
  if (in_.mask_was_set) return str("the affinity mask ", format_cpu_list(in_.granted), " was set from outside");
  if (quota_binds()) return str("the quota of ", *in_.quota, " of ", plural(static_cast<int>(in_.granted.size()), "CPU"), " leaves the rest to others");
  if (sharers_.tangled) return "the ranks' masks overlap";
  if (sharers_.count > count_of(all_)) return str(plural(sharers_.count, "rank"), " share ", plural(count_of(all_), "core"));
  return "";
}

// A core that k ranks may use is worth 1/k of a core to each.
double Planner::fair_share_of_tangled() const {
  double share = 0;
  for (const Core& core : all_) {
    auto uses = [&](const std::vector<int>& mask) { return overlap(core.cpus, mask); };
    share += 1.0 / static_cast<double>(std::max<long>(1, std::ranges::count_if(in_.masks, uses)));
  }
  return share;
}

void Planner::find_share() {
  const std::vector<Core> granted = cores_within(in_.topology, in_.granted);
  all_ = granted;
  if (in_.world_size > 1 && in_.user.workers > 0) all_ = without_workers_cpus(granted, in_.user.worker_affinity);
  if (count_of(all_) < sharers_.count) all_ = granted;  // too few to keep them apart
  why_not_ = why_not_pinned();
  plan_.pin = why_not_.empty();
  if (plan_.pin) {
    share_ = divide(all_, sharers_.count)[static_cast<size_t>(sharers_.place)];
    cores_ = count_of(share_);
    cap_ = hardware_threads(share_);
  } else {
    cores_ = sharers_.tangled ? static_cast<int>(fair_share_of_tangled() + 1e-9) : count_of(all_) / sharers_.count;
    cap_ = std::max(cores_, hardware_threads(all_) / sharers_.count);
  }
  if (quota_binds()) {
    cores_ = std::min(cores_, quota_share());
    cap_ = std::min(cap_, quota_share());
  }
  cores_ = std::max(cores_, 1);
  cap_ = std::max(cap_, 1);
}

void Planner::choose_workers() {
  plan_.workers = in_.world_size > 1 ? std::min(in_.user.workers, cores_) : 0;
  // A list of the user's has been taken out of these cores already.
  if (plan_.workers == 0 || !in_.user.worker_affinity.empty()) return;
  bool smt = std::ranges::any_of(all_, has_smt);
  spare_ = in_.user.threads ? *in_.user.threads <= cores_ - plan_.workers
                            : cores_ >= plan_.workers * (smt ? kCoresPerWorkerSmt : kCoresPerWorker);
}

void Planner::choose_threads() {
  plan_.compute_threads = in_.user.threads ? std::min(*in_.user.threads, cap_) : cores_ - (spare_ ? plan_.workers : 0);
}

void Planner::place() {
  const auto& listed = in_.user.worker_affinity;
  for (int i = 0; !listed.empty() && i < plan_.workers; ++i)
    plan_.worker_cpus.push_back(listed[static_cast<size_t>(in_.local_rank * plan_.workers + i) % listed.size()]);
  if (!plan_.pin) return;

  std::vector<Core> compute = share_;
  if (spare_) {
    for (auto core = compute.end() - plan_.workers; core != compute.end(); ++core) plan_.worker_cpus.push_back(core->cpus.front());
    compute.resize(compute.size() - static_cast<size_t>(plan_.workers));
  }
  bool every_thread = plan_.compute_threads > count_of(compute);
  for (const Core& core : compute)
    plan_.compute_cpus.insert(plan_.compute_cpus.end(), core.cpus.begin(), every_thread ? core.cpus.end() : core.cpus.begin() + 1);
  std::ranges::sort(plan_.compute_cpus);

  // The second hardware threads of the last cores, where compute leaves them idle and there is one for every worker.
  std::vector<int> siblings;
  for (const Core& core : compute)
    if (has_smt(core)) siblings.push_back(core.cpus[1]);
  if (listed.empty() && !spare_ && !every_thread && static_cast<int>(siblings.size()) >= plan_.workers)
    plan_.worker_cpus.assign(siblings.end() - plan_.workers, siblings.end());

  std::set<int> nodes, machine;
  for (const Core& core : in_.topology.cores) machine.insert(core.node);
  for (const Core& core : share_)
    if (core.node >= 0 && (!in_.granted_nodes || std::ranges::count(*in_.granted_nodes, core.node))) nodes.insert(core.node);
  plan_.memory_nodes.assign(nodes.begin(), nodes.end());
  // Over several nodes the kernel's own way is right: memory comes from the node of the thread that first touches it.
  plan_.prefer_node = nodes.size() == 1 && machine.size() > 1 && !in_.memory_policy_was_set;
  near_memory_ = nodes.size() > 1 && nodes.size() < machine.size() && !in_.memory_policy_was_set;
}

std::string Planner::describe_threads() const {
  std::string text = plural(plan_.compute_threads, "compute thread");
  if (plan_.pin) text += str(" on CPU", plan_.compute_cpus.size() == 1 ? " " : "s ", format_cpu_list(plan_.compute_cpus));
  if (in_.user.threads && *in_.user.threads > plan_.compute_threads)
    text += str(" (OMP_NUM_THREADS=", *in_.user.threads, " is more than is granted)");
  else if (in_.user.threads) text += " (OMP_NUM_THREADS)";
  if (in_.user.torchrun_threads) text += " (torchrun's own OMP_NUM_THREADS=1 does not count)";
  return text;
}

std::string Planner::describe() const {
  std::string text = str("local rank ", in_.local_rank, " of ", in_.local_size, ": ", describe_threads());
  if (plan_.workers > 0) {
    text += str(", ", plural(plan_.workers, "worker"));
    if (!plan_.worker_cpus.empty()) text += str(" on CPU", plan_.worker_cpus.size() == 1 ? " " : "s ", format_cpu_list(plan_.worker_cpus));
    if (in_.user.workers > plan_.workers) text += str(" (CCL_WORKER_COUNT=", in_.user.workers, " is more than is granted)");
  }
  if (plan_.prefer_node) text += str(", memory of node ", plan_.memory_nodes[0]);
  if (near_memory_) text += str(", memory of nodes ", format_cpu_list(plan_.memory_nodes), " by first touch");
  if (!plan_.pin) text += str("; not pinned: ", why_not_);
  return text;
}

Plan Planner::make() {
  find_share();
  choose_workers();
  choose_threads();
  place();
  plan_.sentence = describe();
  return plan_;
}

}  // namespace

Plan make_plan(const PlanInput& input) {
  if (input.local_size < 1 || input.local_rank < 0 || input.local_rank >= input.local_size || input.world_size < input.local_size)
    throw InvalidArgument(str("local rank ", input.local_rank, " of ", input.local_size, " in a world of ", input.world_size));
  if (!input.masks.empty() && (static_cast<int>(input.masks.size()) != input.local_size ||
                               input.masks[static_cast<size_t>(input.local_rank)] != input.granted))
    throw InvalidArgument(str("the masks of ", input.masks.size(), " ranks do not fit local rank ", input.local_rank, " of ", input.local_size));
  if (!input.user.pin) {
    Plan untouched;
    untouched.workers = input.user.workers;
    untouched.sentence = "TRIREME_PIN=0: threads, cores and memory are left as they are";
    return untouched;
  }
  return Planner(input).make();
}

}  // namespace trireme::cpu
