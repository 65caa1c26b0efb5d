#include "trireme/cpu/topology.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/cpu/affinity.h"

namespace trireme::cpu {
namespace {

using testing::ElementsAre;

TEST(Topology, OneSocketWithoutSmt) {
  EXPECT_THAT(synthetic_topology("pack:1 core:2 pu:1").cores, ElementsAre(Core{{0}, 0, 0}, Core{{1}, 0, 0}));
}

TEST(Topology, TwoSocketsWithSmt) {
  EXPECT_THAT(synthetic_topology("pack:2 numa:1 core:2 pu:2").cores,
              ElementsAre(Core{{0, 1}, 0, 0}, Core{{2, 3}, 0, 0}, Core{{4, 5}, 1, 1}, Core{{6, 7}, 1, 1}));
}

// As Linux numbers most machines: first one hardware thread of every core, then the siblings.
TEST(Topology, SiblingsAreNumberedLast) {
  EXPECT_THAT(synthetic_topology("pack:2 numa:1 core:2 pu:2(indexes=2*4:1*2)").cores,
              ElementsAre(Core{{0, 4}, 0, 0}, Core{{1, 5}, 0, 0}, Core{{2, 6}, 1, 1}, Core{{3, 7}, 1, 1}));
}

TEST(Topology, SubNumaClustersAreNodesOfTheirSocket) {
  EXPECT_THAT(synthetic_topology("pack:2 numa:2 core:1 pu:1").cores,
              ElementsAre(Core{{0}, 0, 0}, Core{{1}, 0, 1}, Core{{2}, 1, 2}, Core{{3}, 1, 3}));
}

TEST(Topology, FourSockets) {
  auto cores = synthetic_topology("pack:4 numa:1 core:8 pu:2").cores;
  ASSERT_EQ(cores.size(), 32u);
  EXPECT_EQ(cores[31], (Core{{62, 63}, 3, 3}));
}

// Sockets whose CPUs are numbered in turn, as some machines do: those of a socket still lie side by side.
TEST(Topology, CpusNumberedAcrossSockets) {
  EXPECT_THAT(synthetic_topology("pack:2 numa:1 core:2 pu:1(indexes=0,2,1,3)").cores,
              ElementsAre(Core{{0}, 0, 0}, Core{{2}, 0, 0}, Core{{1}, 1, 1}, Core{{3}, 1, 1}));
}

TEST(Topology, AMachineThatDoesNotTellItsCores) {
  EXPECT_THAT(synthetic_topology("pu:2").cores, ElementsAre(Core{{0}, 0, 0}, Core{{1}, 0, 0}));
}

TEST(Topology, WhatHwlocDoesNotUnderstandIsRefused) {
  EXPECT_THROW(synthetic_topology("pack:two"), InvalidArgument);
  EXPECT_THROW(synthetic_topology(""), InvalidArgument);
}

TEST(Topology, CoresWithinAGrant) {
  Topology machine = synthetic_topology("pack:2 numa:1 core:2 pu:2");
  EXPECT_THAT(cores_within(machine, {1, 6, 7}), ElementsAre(Core{{1}, 0, 0}, Core{{6, 7}, 1, 1}));
  EXPECT_TRUE(cores_within(machine, {}).empty());
  EXPECT_THAT(cores_within(machine, {2, 99}), ElementsAre(Core{{2}, 0, 0}, Core{{99}, -1, -1}));
}

TEST(Topology, ThisMachineHasWhatTheMaskGrantsAndTheThreadStaysWhereItMay) {
  auto before = allowed_cpus();
  Topology machine = read_topology();
  EXPECT_EQ(allowed_cpus(), before);
  for (int cpu : before)
    EXPECT_TRUE(std::ranges::any_of(machine.cores, [&](const Core& core) { return std::ranges::count(core.cpus, cpu) == 1; })) << cpu;
}

}  // namespace
}  // namespace trireme::cpu
