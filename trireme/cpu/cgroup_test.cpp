#include "trireme/cpu/cgroup.h"

#include <gtest/gtest.h>

#include <string>

#include "trireme/cpu/temporary_root.h"

namespace trireme::cpu {
namespace {

using Numbers = std::vector<int>;

class CgroupTest : public testing::Test {
 protected:
  void write(const std::filesystem::path& file, const std::string& content) { files_.write(file, content); }

  TemporaryRoot files_;
  const std::filesystem::path& root_ = files_.path();
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

TEST_F(CgroupTest, MemoryIsTheTightestOnTheWayUp) {
  write("proc/self/cgroup", "4:memory:/docker/abc\n0::/kubepods/pod1\n");
  EXPECT_EQ(cgroup_limits(root_).memory_bytes, std::nullopt);
  write("sys/fs/cgroup/kubepods/pod1/memory.max", "max\n");
  write("sys/fs/cgroup/kubepods/memory.max", "8589934592\n");
  EXPECT_EQ(cgroup_limits(root_).memory_bytes, int64_t{8} << 30);
  write("sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_EQ(cgroup_limits(root_).memory_bytes, int64_t{8} << 30);
  write("sys/fs/cgroup/memory/docker/memory.limit_in_bytes", "4294967296\n");
  EXPECT_EQ(cgroup_limits(root_).memory_bytes, int64_t{4} << 30);
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

TEST_F(CgroupTest, V2CpusetIsTheEffectiveOne) {
  write("proc/self/cgroup", "0::/slurm/job7\n");
  write("sys/fs/cgroup/slurm/job7/cpuset.cpus", "\n");
  write("sys/fs/cgroup/slurm/job7/cpuset.cpus.effective", "4-6,12\n");
  write("sys/fs/cgroup/slurm/job7/cpuset.mems.effective", "1\n");
  CgroupLimits limits = cgroup_limits(root_);
  EXPECT_EQ(limits.cpus, (Numbers{4, 5, 6, 12}));
  EXPECT_EQ(limits.nodes, Numbers{1});
  EXPECT_EQ(limits.quota, std::nullopt);
}

// A group below one with a cpuset need not have the controller itself.
TEST_F(CgroupTest, V2CpusetOfAGroupAbove) {
  write("proc/self/cgroup", "0::/slurm/job7/step0/task1\n");
  write("sys/fs/cgroup/cpuset.cpus.effective", "0-15\n");
  write("sys/fs/cgroup/slurm/job7/cpuset.cpus.effective", "4-7\n");
  write("sys/fs/cgroup/slurm/job7/step0/cpu.max", "350000 100000\n");
  CgroupLimits limits = cgroup_limits(root_);
  EXPECT_EQ(limits.cpus, (Numbers{4, 5, 6, 7}));
  EXPECT_EQ(limits.quota, 3.5);
}

TEST_F(CgroupTest, V1CpusetAndQuotaLieApart) {
  write("proc/self/cgroup", "7:cpuset:/box\n4:cpu,cpuacct:/box/inner\n0::/\n");
  write("sys/fs/cgroup/cpuset/cpuset.cpus", "0-7\n");
  write("sys/fs/cgroup/cpuset/box/cpuset.cpus", "2-5\n");
  write("sys/fs/cgroup/cpuset/box/cpuset.effective_cpus", "2-4\n");
  write("sys/fs/cgroup/cpuset/box/cpuset.mems", "0-1\n");
  write("sys/fs/cgroup/cpu/box/cpu.cfs_quota_us", "200000\n");
  write("sys/fs/cgroup/cpu/box/cpu.cfs_period_us", "100000\n");
  write("sys/fs/cgroup/cpu/box/inner/cpu.cfs_quota_us", "-1\n");
  write("sys/fs/cgroup/cpu/box/inner/cpu.cfs_period_us", "100000\n");
  CgroupLimits limits = cgroup_limits(root_);
  EXPECT_EQ(limits.cpus, (Numbers{2, 3, 4}));
  EXPECT_EQ(limits.nodes, (Numbers{0, 1}));
  EXPECT_EQ(limits.quota, 2.0);
}

// The hierarchies are where mountinfo says, not where they usually are: here v1 controllers share a mount, and v2 has a folder of its own.
TEST_F(CgroupTest, MountsAreFoundByMountinfo) {
  write("proc/self/cgroup", "3:cpuset,cpu:/a\n0::/b\n");
  write("proc/self/mountinfo",
        "22 1 8:1 / / rw shared:1 - ext4 /dev/vda rw\n"
        "32 31 0:29 / /groups/cpu,cpuset rw,relatime shared:9 - cgroup cgroup rw,cpuset,cpu\n"
        "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n");
  write("groups/cpu,cpuset/a/cpuset.cpus", "1-3\n");
  write("groups/cpu,cpuset/a/cpu.cfs_quota_us", "150000\n");
  write("groups/cpu,cpuset/a/cpu.cfs_period_us", "100000\n");
  write("sys/fs/cgroup/unified/b/cpuset.cpus.effective", "2-9\n");
  CgroupLimits limits = cgroup_limits(root_);
  EXPECT_EQ(limits.quota, 1.5);
  EXPECT_EQ(limits.cpus, (Numbers{2, 3}));
}

// A container that sees only its own part of the hierarchy, under the host's names.
TEST_F(CgroupTest, AMountOfOnePartOfTheHierarchy) {
  write("proc/self/cgroup", "0::/kubepods/pod1/main\n");
  write("proc/self/mountinfo", "41 31 0:38 /kubepods/pod1 /sys/fs/cgroup ro - cgroup2 cgroup rw\n");
  write("sys/fs/cgroup/cpu.max", "400000 100000\n");
  write("sys/fs/cgroup/main/cpu.max", "250000 100000\n");
  write("sys/fs/cgroup/main/cpuset.cpus.effective", "8-11\n");
  CgroupLimits limits = cgroup_limits(root_);
  EXPECT_EQ(limits.quota, 2.5);
  EXPECT_EQ(limits.cpus, (Numbers{8, 9, 10, 11}));
}

// A process that was moved out of its namespace's root sees a path that leads up: nothing below the mount is its own.
TEST_F(CgroupTest, APathOutsideTheNamespaceIsNotFollowed) {
  write("proc/self/cgroup", "0::/../other\n");
  write("sys/fs/other/cpu.max", "100000 100000\n");
  write("sys/fs/cgroup/cpu.max", "300000 100000\n");
  EXPECT_EQ(cgroup_quota(root_), 3.0);
}

TEST_F(CgroupTest, AListThatCannotBeReadIsNoLimit) {
  write("proc/self/cgroup", "0::/\n");
  write("sys/fs/cgroup/cpuset.cpus.effective", "3-x\n");
  write("sys/fs/cgroup/cpuset.mems.effective", "\n");
  CgroupLimits limits = cgroup_limits(root_);
  EXPECT_EQ(limits.cpus, std::nullopt);
  EXPECT_EQ(limits.nodes, std::nullopt);
}

}  // namespace
}  // namespace trireme::cpu
