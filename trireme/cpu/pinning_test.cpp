// On the real machine. What changes the process runs in one of its own: a death test's, which ends with 0 if all was as expected.
#include "trireme/cpu/pinning.h"

#include <gtest/gtest.h>
#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <thread>

#include "trireme/base/error.h"
#include "trireme/cpu/affinity.h"
#include "trireme/cpu/cgroup.h"
#include "trireme/cpu/temporary_root.h"

namespace trireme::cpu {
namespace {

namespace fs = std::filesystem;
using Cpus = std::vector<int>;

// Without what the caller of the tests may have set.
void forget_settings() {
  for (const char* name : {"OMP_NUM_THREADS", "TORCHELASTIC_RUN_ID", "KMP_AFFINITY", "KMP_HW_SUBSET", "GOMP_CPU_AFFINITY", "OMP_PLACES",
                           "OMP_PROC_BIND", "I_MPI_PIN_DOMAIN", "I_MPI_PIN_PROCESSOR_LIST", "I_MPI_PIN_PROCS", "TRIREME_PIN",
                           "CCL_WORKER_AFFINITY", "CCL_WORKER_COUNT", "CCL_WORKER_OFFLOAD", "CCL_LOG_LEVEL"})
    unsetenv(name);
}

#define CHECK_THAT(condition)                                                      \
  do {                                                                             \
    if (!(condition)) {                                                            \
      std::cerr << "line " << __LINE__ << ": not so: " #condition "\n" << std::flush; \
      std::_Exit(1);                                                               \
    }                                                                              \
  } while (false)

// A thread that stays until it is told to go; its id is known once it runs.
class Sleeper {
 public:
  explicit Sleeper(Cpus cpus = {}) : thread_([this, cpus] {
    if (!cpus.empty()) set_allowed_cpus(cpus);
    id_ = static_cast<pid_t>(syscall(SYS_gettid));
    id_.notify_all();
    go_.wait(false);
  }) {
    id_.wait(0);
  }
  ~Sleeper() {
    go_ = true;
    go_.notify_all();
    thread_.join();
  }
  Cpus cpus() const { return allowed_cpus(id_); }

 private:
  std::atomic<pid_t> id_{0};
  std::atomic<bool> go_{false};
  std::thread thread_;
};

Plan pinned_to(Cpus cpus) {
  Plan plan;
  plan.pin = true;
  plan.compute_threads = static_cast<int>(cpus.size());
  plan.compute_cpus = std::move(cpus);
  plan.sentence = "chosen";
  return plan;
}

class PinningDeathTest : public testing::Test {
 protected:
  void SetUp() override {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    if (allowed_cpus().size() < 2) GTEST_SKIP() << "one CPU only: there is nothing to choose";
  }
};

TEST_F(PinningDeathTest, ThreadsMoveUnlessTheyHaveAMaskOfTheirOwn) {
  auto scenario = [] {
    forget_settings();
    const Cpus all = allowed_cpus(), first{all.front()}, last{all.back()};
    Sleeper ordinary, placed(last);
    CHECK_THAT(placed.cpus() == last);
    apply(pinned_to(first), 0);
    CHECK_THAT(allowed_cpus() == first);
    CHECK_THAT(ordinary.cpus() == first);
    CHECK_THAT(placed.cpus() == last);
    Sleeper later;
    CHECK_THAT(later.cpus() == first);
    CHECK_THAT(applied_plan()->compute_cpus == first);
    // What was granted is not forgotten, and the next plan starts from it.
    CHECK_THAT(cpus_before_pinning() == all);
    CHECK_THAT(observe(0, 1, 1).granted == all);
    apply(Plan{}, 0);
    CHECK_THAT(allowed_cpus() == all && ordinary.cpus() == all && later.cpus() == all);
    CHECK_THAT(placed.cpus() == last);
    std::_Exit(0);
  };
  EXPECT_EXIT(scenario(), testing::ExitedWithCode(0), "^trireme: info: chosen\ntrireme: info: \n$");
}

TEST_F(PinningDeathTest, GrantedCoresAreThoseBeforePinning) {
  auto scenario = [] {
    forget_settings();
    int before = granted_cores();
    apply(pinned_to({allowed_cpus().front()}), 1);
    CHECK_THAT(allowed_cpus().size() == 1);
    CHECK_THAT(granted_cores() == before);
    std::_Exit(0);
  };
  EXPECT_EXIT(scenario(), testing::ExitedWithCode(0), "^$");  // local rank 1 says nothing at the default level
}

TEST_F(PinningDeathTest, WhatTheKernelRefusesIsAWarning) {
  auto scenario = [] {
    forget_settings();
    const Cpus all = allowed_cpus();
    apply(pinned_to({8191}), 0);
    CHECK_THAT(allowed_cpus() == all);
    std::_Exit(0);
  };
  EXPECT_EXIT(scenario(), testing::ExitedWithCode(0), "warn: cannot run on CPUs 8191; threads stay where they are: Invalid argument");
}

int memory_policy() {
  int mode = -1;
  syscall(SYS_get_mempolicy, &mode, nullptr, 0UL, nullptr, 0UL);
  return mode;
}

TEST_F(PinningDeathTest, MemoryIsPreferredFromANodeAndGivenBack) {
  unsigned long node_0 = 1;
  if (syscall(SYS_set_mempolicy, MPOL_PREFERRED, &node_0, 65UL) != 0)
    GTEST_SKIP() << errno_message("set_mempolicy is not permitted here", errno);
  syscall(SYS_set_mempolicy, MPOL_DEFAULT, nullptr, 0UL);
  auto scenario = [] {
    forget_settings();
    Plan plan = pinned_to(allowed_cpus());
    plan.memory_nodes = {0};
    plan.prefer_node = true;
    apply(plan, 1);
    CHECK_THAT(memory_policy() == MPOL_PREFERRED);
    CHECK_THAT(!observe(0, 1, 1).memory_policy_was_set);  // ours is not the user's
    apply(Plan{}, 1);
    CHECK_THAT(memory_policy() == MPOL_DEFAULT);
    unsigned long node_0 = 1;
    syscall(SYS_set_mempolicy, MPOL_BIND, &node_0, 65UL);
    CHECK_THAT(observe(0, 1, 1).memory_policy_was_set);
    std::_Exit(0);
  };
  EXPECT_EXIT(scenario(), testing::ExitedWithCode(0), "^$");
}

// As under taskset: the mask stays, one thread is chosen, whatever the machine has.
TEST_F(PinningDeathTest, ARealNarrowMaskIsRespected) {
  auto scenario = [] {
    forget_settings();
    const Cpus one{allowed_cpus().back()};
    CHECK_THAT(set_allowed_cpus(one));
    PlanInput input = observe(0, 1, 2);
    CHECK_THAT(input.granted == one);
    CHECK_THAT(input.mask_was_set);
    Plan plan = make_plan(input);
    CHECK_THAT(plan.compute_threads == 1 && !plan.pin);
    apply(plan, 0);
    CHECK_THAT(allowed_cpus() == one);
    setenv("OMP_NUM_THREADS", "23", 1);
    CHECK_THAT(make_plan(observe(0, 1, 2)).compute_threads == 1);
    std::_Exit(0);
  };
  EXPECT_EXIT(scenario(), testing::ExitedWithCode(0), "info: local rank 0 of 1: 1 compute thread, 1 worker; not pinned: the affinity mask");
}

TEST_F(PinningDeathTest, TheSwitchLeavesTheProcessAlone) {
  auto scenario = [] {
    forget_settings();
    setenv("TRIREME_PIN", "0", 1);
    const Cpus all = allowed_cpus();
    Plan plan = make_plan(observe(0, 2, 2));
    CHECK_THAT(plan.compute_threads == 0);
    apply(plan, 0);
    CHECK_THAT(allowed_cpus() == all && memory_policy() == MPOL_DEFAULT);
    std::_Exit(0);
  };
  EXPECT_EXIT(scenario(), testing::ExitedWithCode(0), "TRIREME_PIN=0: threads, cores and memory are left as they are\n$");
}

// ---- real control groups

using Settings = std::vector<std::pair<std::string, std::string>>;

// A group below this process's own, in v1's hierarchy of a controller or, where that controller has none, in v2's; removed at the end. Where it
// cannot be made, `problem` says why.
class RealGroup {
 public:
  RealGroup(const std::string& controller, const Settings& v1, const Settings& v2) {
    const auto own_v1 = own_group(controller), own_v2 = own_group("");
    const fs::path mount = "/sys/fs/cgroup";
    if (own_v1) make(mount / controller / own_v1->relative_path(), v1);
    else if (own_v2) make(mount / own_v2->relative_path(), v2);
    else problem = "no control groups here";
  }
  ~RealGroup() {
    std::error_code ignored;
    if (made_) fs::remove(path_, ignored);
  }
  // Runs `scenario` in a child inside the group; its exit status.
  int run(const std::function<void()>& scenario) {
    pid_t child = fork();
    if (child == 0) {
      CHECK_THAT(std::ofstream(path_ / "cgroup.procs") << getpid() << std::flush);
      scenario();
      std::_Exit(0);
    }
    int status = -1;
    waitpid(child, &status, 0);
    return status;
  }
  std::string problem;

 private:
  void make(const fs::path& parent, const Settings& settings) {
    std::error_code error;
    path_ = parent / str("trireme_test_", getpid());
    made_ = fs::create_directory(path_, error);
    if (!made_) problem = str("cannot make a control group: ", error.message());
    for (const auto& [file, value] : settings)
      if (made_ && problem.empty() && !(fs::exists(path_ / file) && std::ofstream(path_ / file) << value << std::flush))
        problem = str("a control group was made, but ", file, " cannot be set in it");
  }
  static std::optional<fs::path> own_group(const std::string& controller) {
    std::ifstream groups("/proc/self/cgroup");
    for (std::string line; std::getline(groups, line);) {
      size_t first = line.find(':'), second = line.find(':', first + 1);
      if (("," + line.substr(first + 1, second - first - 1) + ",").find("," + controller + ",") != std::string::npos)
        return line.substr(second + 1);
    }
    return std::nullopt;
  }
  fs::path path_;
  bool made_ = false;
};

TEST_F(PinningDeathTest, ARealQuotaCapsTheThreads) {
  RealGroup group("cpu", {{"cpu.cfs_period_us", "100000"}, {"cpu.cfs_quota_us", "150000"}}, {{"cpu.max", "150000 100000"}});
  if (!group.problem.empty()) GTEST_SKIP() << group.problem;
  EXPECT_EQ(0, group.run([] {
    forget_settings();
    CHECK_THAT(cgroup_quota() == 1.5);
    CHECK_THAT(granted_cores() == 1);
    Plan plan = make_plan(observe(0, 1, 2));
    CHECK_THAT(plan.compute_threads == 1 && !plan.pin);
  }));
}

// A cpuset is no mask of the user's: the rank is placed inside it.
TEST_F(PinningDeathTest, ARealCpusetIsTheGrant) {
  const int cpu = allowed_cpus().back();
  const Settings settings = {{"cpuset.mems", "0"}, {"cpuset.cpus", std::to_string(cpu)}};
  RealGroup group("cpuset", settings, settings);
  if (!group.problem.empty()) GTEST_SKIP() << group.problem;
  EXPECT_EQ(0, group.run([cpu] {
    forget_settings();
    PlanInput input = observe(0, 1, 2);
    CHECK_THAT(input.granted == Cpus{cpu});
    CHECK_THAT(!input.mask_was_set);
    CHECK_THAT(input.granted_nodes == Cpus{0});
    Plan plan = make_plan(input);
    CHECK_THAT(plan.pin && plan.compute_cpus == Cpus{cpu});
  }));
}

// ---- what is a mask of the user's

TEST(MaskWasSet, ComparesWithTheCpusetAndTheMachine) {
  TemporaryRoot root;
  Topology machine = synthetic_topology("pack:1 core:8 pu:1");
  EXPECT_FALSE(mask_was_set(parse_cpu_list("0-7"), machine, root.path()));
  EXPECT_TRUE(mask_was_set(parse_cpu_list("0-3"), machine, root.path()));
  root.write("proc/self/cgroup", "0::/box\n");
  root.write("sys/fs/cgroup/box/cpuset.cpus.effective", "0-3\n");
  EXPECT_FALSE(mask_was_set(parse_cpu_list("0-3"), machine, root.path()));
  EXPECT_TRUE(mask_was_set(parse_cpu_list("0-2"), machine, root.path()));
}

TEST(MaskWasSet, IsolatedCpusAreNobodys) {
  TemporaryRoot root;
  Topology machine = synthetic_topology("pack:1 core:8 pu:1");
  root.write("sys/devices/system/cpu/isolated", "6-7\n");
  EXPECT_FALSE(mask_was_set(parse_cpu_list("0-5"), machine, root.path()));
  EXPECT_TRUE(mask_was_set(parse_cpu_list("0-4"), machine, root.path()));
  root.write("sys/devices/system/cpu/isolated", "\n");
  EXPECT_TRUE(mask_was_set(parse_cpu_list("0-5"), machine, root.path()));
}

}  // namespace
}  // namespace trireme::cpu
