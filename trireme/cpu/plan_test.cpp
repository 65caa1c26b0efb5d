#include "trireme/cpu/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/cpu/affinity.h"

namespace trireme::cpu {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using Cpus = std::vector<int>;

constexpr const char* kTwoSockets = "pack:2 numa:1 core:24 pu:1";
constexpr const char* kTwoSocketsSmt = "pack:2 numa:1 core:24 pu:2(indexes=2*48:1*2)";

// All of a machine, for a job on two hosts.
PlanInput on(const char* machine, int local_rank = 0, int local_size = 1) {
  PlanInput input;
  input.topology = synthetic_topology(machine);
  for (const Core& core : input.topology.cores) input.granted.insert(input.granted.end(), core.cpus.begin(), core.cpus.end());
  std::ranges::sort(input.granted);
  input.local_rank = local_rank;
  input.local_size = local_size;
  input.world_size = 2 * local_size;
  return input;
}

Cpus list(const char* text) { return parse_cpu_list(text); }

// ---- whose cores

TEST(Plan, OneRankASocketGetsItsCoresAndItsMemory) {
  Plan first = make_plan(on(kTwoSockets, 0, 2)), second = make_plan(on(kTwoSockets, 1, 2));
  EXPECT_TRUE(first.pin);
  EXPECT_EQ(first.compute_cpus, list("0-22"));
  EXPECT_EQ(first.worker_cpus, Cpus{23});
  EXPECT_EQ(first.memory_nodes, Cpus{0});
  EXPECT_TRUE(first.prefer_node);
  EXPECT_EQ(second.compute_cpus, list("24-46"));
  EXPECT_EQ(second.compute_threads, 23);
  EXPECT_EQ(second.worker_cpus, Cpus{47});
  EXPECT_EQ(second.memory_nodes, Cpus{1});
  EXPECT_EQ(second.sentence, "local rank 1 of 2: 23 compute threads on CPUs 24-46, 1 worker on CPU 47, memory of node 1");
}

TEST(Plan, ARankOnSeveralNodesLeavesMemoryToFirstTouch) {
  Plan plan = make_plan(on("pack:2 numa:4 core:8 pu:1", 1, 2));
  EXPECT_EQ(plan.compute_cpus, list("32-62"));
  EXPECT_EQ(plan.memory_nodes, (Cpus{4, 5, 6, 7}));
  EXPECT_FALSE(plan.prefer_node);
}

TEST(Plan, OneNodeNeedsNoPolicy) { EXPECT_FALSE(make_plan(on("pack:1 core:4 pu:1")).prefer_node); }

TEST(Plan, AMemoryPolicyOfTheUserStays) {
  PlanInput input = on(kTwoSockets, 0, 2);
  input.memory_policy_was_set = true;
  EXPECT_FALSE(make_plan(input).prefer_node);
}

TEST(Plan, ANodeThatIsNotGrantedIsNotPreferred) {
  PlanInput input = on(kTwoSockets, 1, 2);
  input.granted_nodes = Cpus{0};
  Plan plan = make_plan(input);
  EXPECT_FALSE(plan.prefer_node);
  EXPECT_THAT(plan.memory_nodes, IsEmpty());
}

TEST(Plan, MoreRanksThanCoresAreNotPinned) {
  Plan plan = make_plan(on("pack:1 core:2 pu:2", 2, 3));
  EXPECT_FALSE(plan.pin);
  EXPECT_EQ(plan.compute_threads, 1);
  EXPECT_THAT(plan.compute_cpus, IsEmpty());
  EXPECT_THAT(plan.worker_cpus, IsEmpty());
  EXPECT_THAT(plan.sentence, HasSubstr("not pinned: 3 ranks share 2 cores"));
}

// ---- a core for the workers

TEST(Plan, ACoreIsSparedFromEightOn) {
  Plan seven = make_plan(on("pack:1 core:7 pu:1")), eight = make_plan(on("pack:1 core:8 pu:1"));
  EXPECT_EQ(seven.compute_threads, 7);
  EXPECT_THAT(seven.worker_cpus, IsEmpty());
  EXPECT_EQ(eight.compute_threads, 7);
  EXPECT_EQ(eight.compute_cpus, list("0-6"));
  EXPECT_EQ(eight.worker_cpus, Cpus{7});
}

TEST(Plan, WithSmtASiblingServesBelowSixteen) {
  Plan fifteen = make_plan(on("pack:1 core:15 pu:2")), sixteen = make_plan(on("pack:1 core:16 pu:2"));
  EXPECT_EQ(fifteen.compute_threads, 15);
  EXPECT_THAT(fifteen.compute_cpus, ElementsAre(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28));
  EXPECT_EQ(fifteen.worker_cpus, Cpus{29});
  EXPECT_EQ(sixteen.compute_threads, 15);
  EXPECT_EQ(sixteen.worker_cpus, Cpus{30});
}

TEST(Plan, SeveralWorkersNeedSeveralTimesTheCores) {
  PlanInput input = on(kTwoSockets, 0, 2);
  input.user.workers = 3;
  EXPECT_EQ(make_plan(input).worker_cpus, list("21-23"));
  input.user.workers = 4;
  EXPECT_THAT(make_plan(input).worker_cpus, IsEmpty());
  EXPECT_EQ(make_plan(input).compute_threads, 24);
}

TEST(Plan, OneProcessHasNobodyToTalkTo) {
  PlanInput input = on("pack:1 core:8 pu:1");
  input.world_size = 1;
  Plan plan = make_plan(input);
  EXPECT_EQ(plan.compute_threads, 8);
  EXPECT_EQ(plan.workers, 0);
}

TEST(Plan, MoreWorkersThanCoresAreCapped) {
  PlanInput input = on("pack:1 core:2 pu:1");
  input.user.workers = 8;
  Plan plan = make_plan(input);
  EXPECT_EQ(plan.workers, 2);
  EXPECT_THAT(plan.sentence, HasSubstr("2 workers (CCL_WORKER_COUNT=8 is more than is granted)"));
}

TEST(Plan, CpusListedForWorkersAreTheirs) {
  for (int rank : {0, 1}) {
    PlanInput input = on(kTwoSockets, rank, 2);
    input.user.worker_affinity = {10, 34};
    Plan plan = make_plan(input);
    EXPECT_EQ(plan.worker_cpus, Cpus{rank == 0 ? 10 : 34});
    EXPECT_EQ(plan.compute_cpus, rank == 0 ? list("0-9,11-23") : list("24-33,35-47"));
    EXPECT_EQ(plan.compute_threads, 23);
  }
}

TEST(Plan, AListedSiblingTakesNoCore) {
  PlanInput input = on("pack:1 core:4 pu:2");
  input.user.worker_affinity = {7};
  Plan plan = make_plan(input);
  EXPECT_THAT(plan.compute_cpus, ElementsAre(0, 2, 4, 6));
  EXPECT_EQ(plan.worker_cpus, Cpus{7});
}

TEST(Plan, AListThatLeavesNoCoreToComputeIsShared) {
  PlanInput input = on("pack:1 core:2 pu:1");
  input.user.worker_affinity = {0, 1};
  Plan plan = make_plan(input);
  EXPECT_EQ(plan.compute_cpus, (Cpus{0, 1}));
  EXPECT_EQ(plan.worker_cpus, Cpus{0});
}

// ---- what the user said

TEST(Plan, TheSwitchTurnsAllOff) {
  PlanInput input = on(kTwoSockets, 0, 2);
  input.user.pin = false;
  input.user.threads = 99;
  Plan plan = make_plan(input);
  EXPECT_FALSE(plan.pin);
  EXPECT_EQ(plan.compute_threads, 0);
  EXPECT_THAT(plan.sentence, HasSubstr("TRIREME_PIN=0"));
}

TEST(Plan, TheGuides23OnASmallMachineIsCapped) {
  PlanInput input = on("pack:1 core:2 pu:1", 1, 2);
  input.user.threads = 23;
  Plan plan = make_plan(input);
  EXPECT_EQ(plan.compute_threads, 1);
  EXPECT_EQ(plan.compute_cpus, Cpus{1});
  EXPECT_THAT(plan.sentence, HasSubstr("(OMP_NUM_THREADS=23 is more than is granted)"));
}

TEST(Plan, TheGuides23OnTheirMachineIsKept) {
  PlanInput input = on(kTwoSocketsSmt, 1, 2);
  input.user.threads = 23;
  Plan plan = make_plan(input);
  EXPECT_EQ(plan.compute_threads, 23);
  EXPECT_EQ(plan.compute_cpus, list("24-46"));
  EXPECT_EQ(plan.worker_cpus, Cpus{47});
}

TEST(Plan, CoresThatTheUsersNumberLeavesServeTheWorkers) {
  PlanInput input = on("pack:1 core:4 pu:1");
  input.user.threads = 3;
  EXPECT_EQ(make_plan(input).worker_cpus, Cpus{3});
  input.user.threads = 4;
  EXPECT_THAT(make_plan(input).worker_cpus, IsEmpty());
  EXPECT_EQ(make_plan(input).compute_threads, 4);
}

TEST(Plan, MoreThreadsThanCoresRunOnSiblings) {
  PlanInput input = on("pack:1 core:4 pu:2");
  input.user.threads = 6;
  Plan plan = make_plan(input);
  EXPECT_EQ(plan.compute_threads, 6);
  EXPECT_EQ(plan.compute_cpus, list("0-7"));
  EXPECT_THAT(plan.worker_cpus, IsEmpty());
  input.user.threads = 9;
  EXPECT_EQ(make_plan(input).compute_threads, 8);
}

TEST(Plan, ThreadsThatTheUserPlacesStay) {
  PlanInput input = on(kTwoSockets, 0, 2);
  input.user.placed_by = "KMP_AFFINITY";
  Plan plan = make_plan(input);
  EXPECT_FALSE(plan.pin);
  EXPECT_EQ(plan.compute_threads, 23);
  EXPECT_THAT(plan.worker_cpus, IsEmpty());
  EXPECT_FALSE(plan.prefer_node);
  EXPECT_THAT(plan.sentence, HasSubstr("not pinned: KMP_AFFINITY is set"));
}

TEST(Plan, TorchrunsNumberIsMentioned) {
  PlanInput input = on("pack:1 core:4 pu:1", 0, 2);
  input.user.torchrun_threads = true;
  Plan plan = make_plan(input);
  EXPECT_EQ(plan.compute_threads, 2);
  EXPECT_THAT(plan.sentence, HasSubstr("(torchrun's own OMP_NUM_THREADS=1 does not count)"));
}

// ---- masks

TEST(Plan, AMaskFromOutsideStaysAndIsDividedInNumber) {
  PlanInput input = on(kTwoSockets, 0, 2);
  input.granted = list("0-5");
  input.mask_was_set = true;
  Plan plan = make_plan(input);
  EXPECT_FALSE(plan.pin);
  EXPECT_EQ(plan.compute_threads, 3);
  EXPECT_THAT(plan.sentence, HasSubstr("not pinned: the affinity mask 0-5 was set from outside"));
}

// As mpirun --bind-to socket gives them: where the masks are known, each rank has its own whole.
TEST(Plan, AMaskOfItsOwnIsNotDivided) {
  PlanInput input = on(kTwoSockets, 1, 2);
  input.granted = list("24-47");
  input.mask_was_set = true;
  input.masks = {list("0-23"), input.granted};
  EXPECT_EQ(make_plan(input).compute_threads, 23);
  input.masks = {input.granted, input.granted};
  EXPECT_EQ(make_plan(input).compute_threads, 11);
}

// Cpusets that differ from rank to rank, as a batch system gives its tasks: each rank is placed within its own.
TEST(Plan, CpusetsOfDifferentSize) {
  PlanInput input = on(kTwoSockets, 0, 3);
  input.masks = {list("2-6"), list("24-47"), list("24-47")};
  input.granted = input.masks[0];
  EXPECT_EQ(make_plan(input).compute_cpus, list("2-6"));
  input.local_rank = 2;
  input.granted = input.masks[2];
  Plan plan = make_plan(input);
  EXPECT_EQ(plan.compute_cpus, list("36-46"));
  EXPECT_EQ(plan.worker_cpus, Cpus{47});
}

TEST(Plan, OverlappingMasksAreSharedInNumberOnly) {
  PlanInput input = on("pack:1 core:8 pu:1", 0, 2);
  input.masks = {list("0-5"), list("4-7")};
  input.granted = input.masks[0];
  Plan plan = make_plan(input);
  EXPECT_FALSE(plan.pin);
  EXPECT_EQ(plan.compute_threads, 5);  // four of its own and half of two
  EXPECT_THAT(plan.sentence, HasSubstr("the ranks' masks overlap"));
}

TEST(Plan, ACpusetOfSiblingsOnlyHasOneThreadACore) {
  PlanInput input = on("pack:1 core:4 pu:2");
  input.granted = {1, 3, 4, 5};
  Plan plan = make_plan(input);
  EXPECT_EQ(plan.compute_cpus, (Cpus{1, 3, 4}));
  EXPECT_EQ(plan.compute_threads, 3);
  EXPECT_EQ(plan.worker_cpus, Cpus{5});
}

// ---- quotas

TEST(Plan, AQuotaCapsTheThreadsAndPinsNothing) {
  PlanInput input = on("pack:2 numa:1 core:16 pu:1");
  input.quota = 4.7;
  Plan plan = make_plan(input);
  EXPECT_FALSE(plan.pin);
  EXPECT_EQ(plan.compute_threads, 4);
  EXPECT_THAT(plan.sentence, HasSubstr("not pinned: the quota of 4.7 of 32 CPUs leaves the rest to others"));
}

TEST(Plan, TheRanksOfAHostShareTheQuota) {
  PlanInput input = on("pack:2 numa:1 core:16 pu:1", 1, 2);
  input.quota = 5;
  EXPECT_EQ(make_plan(input).compute_threads, 2);
  input.quota = 0.5;
  EXPECT_EQ(make_plan(input).compute_threads, 1);
  input.quota = 20;
  EXPECT_EQ(make_plan(input).compute_threads, 9);  // ten, of which a worker keeps one busy
  input.user.threads = 23;
  EXPECT_EQ(make_plan(input).compute_threads, 10);
}

// Kubernetes' static CPU manager: a cpuset, and a quota that is all of it.
TEST(Plan, AQuotaForAllGrantedCpusDoesNotBind) {
  PlanInput input = on("pack:2 numa:1 core:16 pu:1", 0, 2);
  input.granted = list("0-7");
  input.quota = 8;
  Plan plan = make_plan(input);
  EXPECT_TRUE(plan.pin);
  EXPECT_EQ(plan.compute_cpus, list("0-3"));
}

// ---- over many machines

// Ranks of a host never share a CPU while they are pinned, and use nothing that is not granted.
TEST(Plan, RanksKeepOutOfEachOthersWay) {
  for (const char* machine : {"pack:1 core:1 pu:1", "pack:1 core:2 pu:1", "pack:1 core:6 pu:2", "pack:2 numa:1 core:28 pu:2(indexes=2*56:1*2)",
                              "pack:4 numa:1 core:9 pu:1", "pack:2 numa:4 core:13 pu:2", "pack:4 numa:2 core:5 pu:2"}) {
    for (int ranks = 1; ranks <= 9; ++ranks) {
      std::vector<int> used;
      for (int rank = 0; rank < ranks; ++rank) {
        PlanInput input = on(machine, rank, ranks);
        Plan plan = make_plan(input);
        SCOPED_TRACE(str(machine, ", ", plan.sentence));
        EXPECT_GE(plan.compute_threads, 1);
        EXPECT_EQ(plan.pin, ranks <= static_cast<int>(input.topology.cores.size()));
        if (!plan.pin) continue;
        EXPECT_EQ(plan.compute_cpus.size(), static_cast<size_t>(plan.compute_threads));
        EXPECT_TRUE(plan.worker_cpus.empty() || plan.worker_cpus.size() == static_cast<size_t>(plan.workers));
        used.insert(used.end(), plan.compute_cpus.begin(), plan.compute_cpus.end());
        used.insert(used.end(), plan.worker_cpus.begin(), plan.worker_cpus.end());
        for (int cpu : used) EXPECT_EQ(std::ranges::count(input.granted, cpu), 1) << cpu;
      }
      std::ranges::sort(used);
      EXPECT_EQ(std::ranges::adjacent_find(used), used.end()) << machine << ", " << ranks << " ranks";
    }
  }
}

TEST(Plan, WhatDoesNotFitTogetherIsRefused) {
  EXPECT_THROW(make_plan(on(kTwoSockets, 2, 2)), InvalidArgument);
  EXPECT_THROW(make_plan(on(kTwoSockets, -1, 2)), InvalidArgument);
  PlanInput input = on(kTwoSockets, 0, 2);
  input.world_size = 1;
  EXPECT_THROW(make_plan(input), InvalidArgument);
  input.world_size = 2;
  input.masks = {input.granted};
  EXPECT_THROW(make_plan(input), InvalidArgument);
}

}  // namespace
}  // namespace trireme::cpu
