#include "trireme/cpu/affinity.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <thread>

#include "trireme/base/error.h"
#include "trireme/cpu/cgroup.h"

namespace trireme::cpu {
namespace {

TEST(Affinity, AllowedCpusAreAscendingAndNotEmpty) {
  auto cpus = allowed_cpus();
  ASSERT_FALSE(cpus.empty());
  EXPECT_TRUE(std::ranges::is_sorted(cpus));
}

TEST(Affinity, GrantedCoresFitTheMask) {
  EXPECT_GE(granted_cores(), 1);
  EXPECT_LE(granted_cores(), static_cast<int>(allowed_cpus().size()));
}

// As a launcher binds ranks, each to a CPU of its own.
TEST(Affinity, ProcessesHaveTheirMasksTogether) {
  auto cpus = allowed_cpus();
  if (cpus.size() < 2) GTEST_SKIP() << "one CPU only";
  pid_t other = fork();
  if (other == 0) {
    pause();
    _exit(0);
  }
  ASSERT_TRUE(set_allowed_cpus({cpus.back()}, other));
  std::thread([&] {
    ASSERT_TRUE(pin_this_thread(cpus.front()));
    int both = cgroup_quota().value_or(2) < 2 ? 1 : 2;
    EXPECT_EQ(granted_cores(), 1);
    EXPECT_EQ(granted_cores({other}), both);
  }).join();
  kill(other, SIGKILL);
  waitpid(other, nullptr, 0);
  EXPECT_EQ(granted_cores({other}), granted_cores());
}

// In a thread of its own: the mask of the test's thread stays as it is.
TEST(Affinity, PinsTheCallingThreadOnly) {
  auto before = allowed_cpus();
  std::thread([&] {
    EXPECT_TRUE(pin_this_thread(before.back()));
    EXPECT_EQ(sched_getcpu(), before.back());
    EXPECT_EQ(allowed_cpus(), std::vector<int>{before.back()});
  }).join();
  EXPECT_EQ(allowed_cpus(), before);
}

TEST(Affinity, ACpuThatIsNotThereIsRefused) {
  EXPECT_FALSE(pin_this_thread(-1));
  EXPECT_FALSE(pin_this_thread(8191));
  EXPECT_FALSE(pin_this_thread(1 << 20));
}

TEST(CpuList, NumbersAndRangesInTheOrderGiven) {
  EXPECT_EQ(parse_cpu_list("3,4,7-9"), (std::vector<int>{3, 4, 7, 8, 9}));
  EXPECT_EQ(parse_cpu_list("9,0"), (std::vector<int>{9, 0}));
  EXPECT_EQ(parse_cpu_list("5-5"), std::vector<int>{5});
  EXPECT_TRUE(parse_cpu_list("auto").empty());
}

TEST(CpuList, IsWrittenAsTheKernelDoes) {
  EXPECT_EQ(format_cpu_list({3, 4, 7, 8, 9, 12}), "3-4,7-9,12");
  EXPECT_EQ(format_cpu_list({0}), "0");
  EXPECT_EQ(format_cpu_list({}), "");
}

TEST(CpuList, AnythingElseIsRefused) {
  for (const char* text : {"", "x", "1,", ",1", "1-", "-1", "1--2", "4-2", "1 2", "0x1", "99999", "0-4294967296", "AUTO"})
    EXPECT_THROW(parse_cpu_list(text), InvalidArgument) << text;
}

}  // namespace
}  // namespace trireme::cpu
