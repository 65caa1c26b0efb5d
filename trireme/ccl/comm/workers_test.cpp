// Where workers run when the process's threads were planned. In a process of its own: a plan changes the process for good.
#include "trireme/ccl/comm/workers.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <thread>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/ccl/comm/test_world.h"
#include "trireme/cpu/affinity.h"
#include "trireme/cpu/pinning.h"

namespace trireme::ccl {
namespace {

using Cpus = std::vector<int>;

int threads_on(const Cpus& cpus) {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) {
    try {
      count += cpu::allowed_cpus(std::atoi(entry.path().filename().c_str())) == cpus;
    } catch (const IoError&) {  // it has ended meanwhile
    }
  }
  return count;
}

// A thread places itself some time after it was started.
bool soon(const std::function<bool()>& condition) {
  auto until = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!condition() && std::chrono::steady_clock::now() < until) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return condition();
}

// Operations that their callers do not wait for at once: workers are called.
bool work() {
  auto world = Communicator::create_threads(2);
  std::vector<float> data[2] = {std::vector<float>(100000, 1.0f), std::vector<float>(100000, 2.0f)};
  std::vector<Request> requests;
  for (size_t rank = 0; rank < 2; ++rank) {
    Operation op;
    op.kind = OpKind::allreduce;
    op.type = DataType::float32;
    op.count = data[rank].size();
    op.send_buffer = op.recv_buffer = data[rank].data();
    requests.push_back(world[rank]->submit(op));
  }
  bool done = soon([&] { return requests[0].test() && requests[1].test(); });
  return done && data[0][0] == 3.0f && data[1].back() == 3.0f;
}

class PlannedWorkersDeathTest : public testing::Test {
 protected:
  void SetUp() override {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    if (cpu::allowed_cpus().size() < 2) GTEST_SKIP() << "one CPU only";
  }
  static cpu::Plan plan(int workers, const Cpus& worker_cpus) {
    cpu::Plan plan;
    plan.pin = true;
    plan.compute_threads = 1;
    plan.compute_cpus = {cpu::allowed_cpus().front()};
    plan.workers = workers;
    plan.worker_cpus = worker_cpus;
    plan.sentence = "planned";
    return plan;
  }
};

TEST_F(PlannedWorkersDeathTest, RunOnTheCpuOfThePlan) {
  auto scenario = [] {
    const Cpus last{cpu::allowed_cpus().back()};
    cpu::apply(plan(1, last), 1);
    bool none_before = threads_on(last) == 0;
    std::_Exit(none_before && work() && soon([&] { return threads_on(last) == 1; }) ? 0 : 1);
  };
  EXPECT_EXIT(scenario(), testing::ExitedWithCode(0), "");
}

// The number of the plan counts, not the one that it capped.
TEST_F(PlannedWorkersDeathTest, AreAsManyAsThePlanSays) {
  auto scenario = [] {
    setenv("CCL_WORKER_COUNT", "7", 1);
    const Cpus last{cpu::allowed_cpus().back()};
    cpu::apply(plan(2, {last[0], last[0]}), 1);
    std::_Exit(work() && soon([&] { return threads_on(last) == 2; }) ? 0 : 1);
  };
  EXPECT_EXIT(scenario(), testing::ExitedWithCode(0), "");
}

// Without a CPU of their own they are where the process is, and not on the last CPU as without a plan.
TEST_F(PlannedWorkersDeathTest, ShareTheCoresOfARankThatHasFew) {
  auto scenario = [] {
    const Cpus first{cpu::allowed_cpus().front()}, last{cpu::allowed_cpus().back()};
    cpu::apply(plan(1, {}), 1);
    int before = threads_on(first);
    bool worked = work();
    std::this_thread::sleep_for(std::chrono::milliseconds(100));  // time to go elsewhere
    std::_Exit(worked && threads_on(first) > before && threads_on(last) == 0 ? 0 : 1);
  };
  EXPECT_EXIT(scenario(), testing::ExitedWithCode(0), "");
}

// ---- where a process is, told by hand

void expect_refused(const std::string& text) {
  try {
    Communicator::create(1, 0, nullptr);
    ADD_FAILURE() << "accepted, without a word of " << text;
  } catch (const InvalidArgument& error) {
    EXPECT_NE(std::string(error.what()).find(text), std::string::npos) << error.what();
  }
}

TEST(PlaceByHand, IsOneAmongTheRanksOfTheHost) {
  ScopedEnv none("CCL_PROCESS_LAUNCHER", "none"), rank("CCL_LOCAL_RANK", "3"), size("CCL_LOCAL_SIZE", "2");
  expect_refused("CCL_LOCAL_RANK=3 and CCL_LOCAL_SIZE=2");
}

// A launcher's variables do not count beside it.
TEST(PlaceByHand, DecidesWhichCpusOfAListAreOurs) {
  ScopedEnv none("CCL_PROCESS_LAUNCHER", "none"), rank("CCL_LOCAL_RANK", "1"), size("CCL_LOCAL_SIZE", "2");
  ScopedEnv pmi_rank("PMI_RANK", "0"), pmi_size("PMI_SIZE", "1"), cpus("CCL_WORKER_AFFINITY", "0,1,2"), count("CCL_WORKER_COUNT", "2");
  expect_refused("names 3 CPUs for CCL_WORKER_COUNT=2 and 2 ranks on this host");
  ScopedEnv enough("CCL_WORKER_AFFINITY", "0,0,0,0");
  EXPECT_EQ(Communicator::create(1, 0, nullptr)->size(), 1);
}

TEST(Settings, ThatDoNotExistAreRefused) {
  for (const char* name : {"CCL_ATL_TRANSPORT", "CCL_PROCESS_LAUNCHER", "CCL_SPIN_COUNT"}) {
    ScopedEnv wrong(name, "99999999999");
    expect_refused(name);
  }
}

}  // namespace
}  // namespace trireme::ccl
