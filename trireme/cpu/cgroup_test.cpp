#include "trireme/cpu/cgroup.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <fstream>
#include <string>

namespace trireme::cpu {
namespace {

namespace fs = std::filesystem;

// A root directory with the files of a made-up machine.
class CgroupTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "trireme_cgroup_XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    root_ = name;
  }
  void TearDown() override { fs::remove_all(root_); }

  void write(const fs::path& file, const std::string& content) {
    fs::create_directories((root_ / file).parent_path());
    std::ofstream(root_ / file) << content;
  }
  fs::path root_;
};

TEST_F(CgroupTest, NoControlGroupsNoQuota) { EXPECT_EQ(cgroup_quota(root_), std::nullopt); }

TEST_F(CgroupTest, V2ReadsItsOwnGroup) {
  write("proc/self/cgroup", "0::/kubepods/pod1\n");
  write("sys/fs/cgroup/kubepods/pod1/cpu.max", "150000 100000\n");
  EXPECT_EQ(cgroup_quota(root_), 1.5);
}

TEST_F(CgroupTest, V2TakesTheTightestOnTheWayUp) {
  write("proc/self/cgroup", "0::/kubepods/pod1/main\n");
  write("sys/fs/cgroup/kubepods/pod1/main/cpu.max", "max 100000\n");
  write("sys/fs/cgroup/kubepods/pod1/cpu.max", "200000 100000\n");
  write("sys/fs/cgroup/kubepods/cpu.max", "400000 100000\n");
  EXPECT_EQ(cgroup_quota(root_), 2.0);
}

TEST_F(CgroupTest, V2InANamespaceIsTheMount) {
  write("proc/self/cgroup", "0::/\n");
  write("sys/fs/cgroup/cpu.max", "300000 100000\n");
  EXPECT_EQ(cgroup_quota(root_), 3.0);
}

TEST_F(CgroupTest, V2WithoutALimit) {
  write("proc/self/cgroup", "0::/user.slice\n");
  write("sys/fs/cgroup/user.slice/cpu.max", "max 100000\n");
  EXPECT_EQ(cgroup_quota(root_), std::nullopt);
}

TEST_F(CgroupTest, V1ReadsQuotaAndPeriod) {
  write("proc/self/cgroup", "5:cpuset:/x\n4:cpu,cpuacct:/docker/abc\n0::/\n");
  write("sys/fs/cgroup/cpu/docker/abc/cpu.cfs_quota_us", "50000\n");
  write("sys/fs/cgroup/cpu/docker/abc/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(cgroup_quota(root_), 0.5);
}

// Docker with v1 shows the host's path but mounts the container's group at the top.
TEST_F(CgroupTest, V1FallsBackToTheMount) {
  write("proc/self/cgroup", "4:cpuacct,cpu:/docker/abc\n");
  write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "250000\n");
  write("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(cgroup_quota(root_), 2.5);
}

TEST_F(CgroupTest, V1MinusOneIsNoLimit) {
  write("proc/self/cgroup", "4:cpu:/\n");
  write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
  write("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(cgroup_quota(root_), std::nullopt);
}

TEST_F(CgroupTest, GarbageIsNoLimit) {
  write("proc/self/cgroup", "nonsense\n::\n0::/../../etc\n");
  write("sys/fs/cgroup/cpu.max", "many\n");
  EXPECT_EQ(cgroup_quota(root_), std::nullopt);
}

}  // namespace
}  // namespace trireme::cpu
