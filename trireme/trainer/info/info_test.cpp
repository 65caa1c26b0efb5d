#include "trireme/trainer/info/info.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cerrno>
#include <cstdlib>

#include "trireme/cpu/temporary_root.h"

namespace trireme::trainer {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

class ScopedVariable {
 public:
  ScopedVariable(const char* name, const char* value) : name_(name) { ::setenv(name, value, 1); }
  ~ScopedVariable() { ::unsetenv(name_); }

 private:
  const char* name_;
};

TEST(Info, HasAPlanForEveryRank) {
  const Json info = collect_info(3, 2);
  EXPECT_EQ(info["plan"]["ranks_in_all"], 6);
  ASSERT_EQ(info["plan"]["choice"].size(), 3u);
  EXPECT_THAT(info["plan"]["choice"][2].get<std::string>(),
              AllOf(StartsWith("local rank 2 of 3"), HasSubstr("compute thread")));
  for (const char* section : {"CPU", "granted", "memory", "network", "job", "settings"})
    EXPECT_TRUE(info[section].is_object()) << section;
  EXPECT_GE(info["granted"]["cores_granted"].get<int>(), 1);
}

TEST(Info, ManyRanksAreCutShort) {
  EXPECT_THAT(collect_info(40, 1)["plan"]["choice"].dump(), HasSubstr("up to local rank 39"));
}

TEST(Info, TheLauncherSaysHowManyRanksThereAre) {
  ScopedVariable rank("PMI_RANK", "1"), size("PMI_SIZE", "4"), local("MPI_LOCALRANKID", "1"), locals("MPI_LOCALNRANKS", "2");
  const Json info = collect_info();
  EXPECT_EQ(info["plan"]["ranks_on_this_host"], 2);
  EXPECT_EQ(info["plan"]["ranks_in_all"], 4);
  EXPECT_EQ(info["job"]["launcher"], "hydra: rank 1 of 4, on this host 1 of 2");
}

// What is wrong is shown where it belongs; all else is still there.
TEST(Info, WrongSettingsAreShownNotThrown) {
  ScopedVariable interface("TRIREME_IFACE", "nowhere0"), size("PMI_SIZE", "two"), rank("PMI_RANK", "0");
  const Json info = collect_info(2, 1);
  EXPECT_THAT(info["network"]["interfaces"].get<std::string>(), AllOf(StartsWith("not known: "), HasSubstr("nowhere0")));
  EXPECT_THAT(info["job"]["launcher"].get<std::string>(), HasSubstr("PMI_SIZE is 'two'"));
  EXPECT_TRUE(info["CPU"].contains("model"));
}

TEST(Info, SettingsAreListedAndUnknownOnesMarked) {
  ScopedVariable known("CCL_WORKER_COUNT", "2"), unknown("TRIREME_NOT_A_SETTING", "7"), other("OMP_NUM_THREADS", "3"),
      not_ours("SHOELACE", "x");
  const Json settings = settings_section();
  EXPECT_EQ(settings["CCL_WORKER_COUNT"], "2");
  EXPECT_EQ(settings["TRIREME_NOT_A_SETTING"], "7 (without effect: there is no such variable)");
  EXPECT_EQ(settings["OMP_NUM_THREADS"], "3");
  EXPECT_FALSE(settings.contains("SHOELACE"));
}

TEST(Info, MemoryIsReadFromTheKernelsFiles) {
  cpu::TemporaryRoot root;
  EXPECT_THAT(memory_section(root.path()).dump(), HasSubstr("not known"));
  root.write("proc/meminfo",
             "MemTotal:       16777216 kB\nMemAvailable:    8388608 kB\nHugePages_Total:      10\nHugePages_Free:        4\n"
             "Hugepagesize:       2048 kB\n");
  root.write("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
  const Json memory = memory_section(root.path());
  EXPECT_EQ(memory["total"], "16.0 GiB");
  EXPECT_EQ(memory["available"], "8.0 GiB");
  EXPECT_EQ(memory["transparent_huge_pages"], "madvise");
  EXPECT_EQ(memory["reserved_huge_pages"], "4 of 10 free, 2 MiB each");
}

TEST(Info, TextHasEveryNameAndValueWithinTheWidth) {
  const Json info = {{"CPU", {{"model", "X"}, {"long_words", "one two three four five six seven eight nine ten"}}},
                     {"plan", {{"choice", {"first", "second"}}, {"nothing", Json::array()}}},
                     {"memory", "not known: no"}};
  EXPECT_EQ(info_text(info, 40),
            "CPU\n"
            "  model       X\n"
            "  long words  one two three four five\n"
            "              six seven eight nine ten\n"
            "\n"
            "plan\n"
            "  choice   first\n"
            "           second\n"
            "  nothing  none\n"
            "\n"
            "memory\n"
            "    not known: no\n");
}

TEST(DirectReads, LeaveNoChildBehind) {
  direct_reads_are_permitted();  // either answer is right
  EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1);
  EXPECT_EQ(errno, ECHILD);
}

}  // namespace
}  // namespace trireme::trainer
