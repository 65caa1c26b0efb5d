#include "trireme/cpu/divide.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/cpu/affinity.h"

namespace trireme::cpu {
namespace {

using testing::ElementsAre;

// The first hardware threads of each rank's cores, as lists.
std::vector<std::string> divided(const std::vector<Core>& cores, int ranks) {
  std::vector<std::string> lists;
  for (const auto& share : divide(cores, ranks)) {
    std::vector<int> cpus;
    for (const Core& core : share) cpus.push_back(core.cpus.front());
    lists.push_back(format_cpu_list(cpus));
  }
  return lists;
}

std::vector<std::string> divided(const char* machine, int ranks) { return divided(synthetic_topology(machine).cores, ranks); }

TEST(Divide, OneRankASocket) {
  EXPECT_THAT(divided("pack:1 numa:1 core:8 pu:1", 1), ElementsAre("0-7"));
  EXPECT_THAT(divided("pack:2 numa:1 core:8 pu:1", 2), ElementsAre("0-7", "8-15"));
  EXPECT_THAT(divided("pack:4 numa:1 core:8 pu:1", 4), ElementsAre("0-7", "8-15", "16-23", "24-31"));
}

TEST(Divide, ARankOnSeveralSockets) { EXPECT_THAT(divided("pack:4 numa:1 core:8 pu:1", 2), ElementsAre("0-15", "16-31")); }

TEST(Divide, SeveralRanksInASocketGoAlongItsClusters) {
  EXPECT_THAT(divided("pack:1 numa:4 core:3 pu:1", 2), ElementsAre("0-5", "6-11"));
  EXPECT_THAT(divided("pack:1 numa:4 core:3 pu:1", 4), ElementsAre("0-2", "3-5", "6-8", "9-11"));
  EXPECT_THAT(divided("pack:2 numa:2 core:4 pu:1", 8),
              ElementsAre("0-1", "2-3", "4-5", "6-7", "8-9", "10-11", "12-13", "14-15"));
}

// Three ranks on four clusters of three: whole clusters would give 6, 3 and 3 cores, and the last two set the pace.
TEST(Divide, ClustersAreLeftWhereTheyWouldBeUnfair) {
  EXPECT_THAT(divided("pack:1 numa:4 core:3 pu:1", 3), ElementsAre("0-3", "4-7", "8-11"));
  EXPECT_THAT(divided("pack:2 numa:1 core:16 pu:1", 3), ElementsAre("0-10", "11-21", "22-31"));
}

TEST(Divide, SharesDifferByOneCoreAtMost) {
  EXPECT_THAT(divided("pack:1 core:7 pu:1", 3), ElementsAre("0-2", "3-4", "5-6"));
  EXPECT_THAT(divided("pack:2 numa:1 core:5 pu:1", 4), ElementsAre("0-2", "3-4", "5-7", "8-9"));
}

// A grant that is a little uneven keeps the ranks on their sockets, a lopsided one does not.
TEST(Divide, AnUnevenGrant) {
  Topology machine = synthetic_topology("pack:2 numa:1 core:16 pu:1");
  EXPECT_THAT(divided(cores_within(machine, parse_cpu_list("1-15,16-31")), 2), ElementsAre("1-15", "16-31"));
  EXPECT_THAT(divided(cores_within(machine, parse_cpu_list("11-15,16-26")), 2), ElementsAre("11-18", "19-26"));
  EXPECT_THAT(divided(cores_within(machine, parse_cpu_list("0,16-31")), 2), ElementsAre("0,16-23", "24-31"));
}

// Four sockets with 4, 4, 5 and 4 cores granted, two ranks: a socket goes to the rank in whose equal share its middle lies.
TEST(Divide, WholeSocketsOfUnequalGrants) {
  Topology machine = synthetic_topology("pack:4 numa:1 core:5 pu:1");
  EXPECT_THAT(divided(cores_within(machine, parse_cpu_list("0-3,5-8,10-14,15-18")), 2), ElementsAre("0-3,5-8", "10-18"));
}

// Ranks go to the larger socket first: 12 and 6 cores, three ranks.
TEST(Divide, RanksGoWhereTheCoresAre) {
  Topology machine = synthetic_topology("pack:2 numa:1 core:12 pu:1");
  EXPECT_THAT(divided(cores_within(machine, parse_cpu_list("0-5,12-23")), 3), ElementsAre("0-5", "12-17", "18-23"));
}

TEST(Divide, EveryCoreGoesToExactlyOneRank) {
  for (const char* words : {"pack:1 core:13 pu:2", "pack:2 numa:4 core:7 pu:2", "pack:4 numa:2 core:3 pu:1", "pack:3 numa:3 core:5 pu:1"}) {
    Topology machine = synthetic_topology(words);
    for (int ranks = 1; ranks <= static_cast<int>(machine.cores.size()); ++ranks) {
      std::vector<Core> together;
      for (const auto& share : divide(machine.cores, ranks)) {
        EXPECT_FALSE(share.empty()) << words << ", " << ranks << " ranks";
        EXPECT_GE(static_cast<double>(share.size()) * ranks + ranks, 0.8 * static_cast<double>(machine.cores.size()));
        together.insert(together.end(), share.begin(), share.end());
      }
      EXPECT_EQ(together, machine.cores) << words << ", " << ranks << " ranks";
    }
  }
}

TEST(Divide, MoreRanksThanCoresIsNotItsCase) { EXPECT_THROW(divide(synthetic_topology("core:2 pu:1").cores, 3), InternalError); }

}  // namespace
}  // namespace trireme::cpu
