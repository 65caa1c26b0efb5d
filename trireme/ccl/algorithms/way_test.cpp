#include "trireme/ccl/algorithms/way.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <vector>

namespace trireme::ccl {
namespace {

using std::chrono::microseconds;

// Lets operations of 1 MiB take what `costs` says of each way, and returns how often each was chosen.
std::array<int, kWays> run(WayChooser& chooser, int calls, const std::array<int, kWays>& costs, bool direct_is_possible = true) {
  std::array<int, kWays> chosen{};
  for (int call = 0; call < calls; ++call) {
    Way way = chooser.choose(OpKind::allreduce, false, 1 << 20, direct_is_possible);
    ++chosen[static_cast<size_t>(way)];
    chooser.took(OpKind::allreduce, false, 1 << 20, way, microseconds(costs[static_cast<size_t>(way)]));
  }
  return chosen;
}

double time_of(const std::array<int, kWays>& chosen, const std::array<int, kWays>& costs) {
  double total = 0;
  for (size_t way = 0; way < kWays; ++way) total += chosen[way] * costs[way];
  return total;
}

TEST(WayChooser, TakesTheFastestAndTriesTheOthersAtSmallCost) {
  for (const std::array<int, kWays> costs : {std::array{100, 68, 75, 80}, std::array{100, 500, 450, 80}, std::array{60, 150, 150, 90}}) {
    WayChooser chooser({}, true);
    run(chooser, 4 * kWays, costs);  // the first trials
    std::array<int, kWays> chosen = run(chooser, 2000, costs);
    double best = 2000.0 * *std::min_element(costs.begin(), costs.end());
    EXPECT_LE(time_of(chosen, costs), 1.06 * best);
    for (int count : chosen) EXPECT_GE(count, 4) << "a way that is never tried again is never found to have become faster";
  }
}

TEST(WayChooser, FollowsAChange) {
  WayChooser chooser({}, true);
  EXPECT_GT(run(chooser, 500, {100, 68, 75, 80})[1], 450);
  run(chooser, 20, {100, 500, 450, 80});
  EXPECT_GT(run(chooser, 200, {100, 500, 450, 80})[3], 180) << "the other core has moved away";
  run(chooser, 400, {100, 68, 75, 80});
  EXPECT_GT(run(chooser, 200, {100, 68, 75, 80})[1], 180) << "and come back";
}

TEST(WayChooser, OneCallThatWasHeldUpDecidesNothing) {
  WayChooser chooser({}, true);
  run(chooser, 100, {60, 150, 150, 90});
  run(chooser, 1, {5'000'000, 150, 150, 90});  // a rank was stopped
  run(chooser, 300, {60, 150, 150, 90});
  EXPECT_GT(run(chooser, 200, {60, 150, 150, 90})[0], 180);
}

// Calls of 80 ms are not waited for sixteen times.
TEST(WayChooser, FollowsAChangeOfLongCallsSoon) {
  WayChooser chooser({}, true);
  run(chooser, 30, {30'000, 15'000, 14'000, 18'000});
  EXPECT_LE(run(chooser, 12, {30'000, 84'000, 84'000, 18'000})[1] + run(chooser, 12, {30'000, 84'000, 84'000, 18'000})[2], 6);
}

// Two ways that differ less than their calls do: the better one is used nearly always.
TEST(WayChooser, LuckyCallsDecideNothing) {
  WayChooser chooser({}, true);
  uint32_t random = 1;
  int right = 0;
  for (int call = 0; call < 4000; ++call) {
    Way way = chooser.choose(OpKind::alltoall, false, 1 << 20, true);
    random = random * 1664525 + 1013904223;
    const int noise = (random >> 16) % 3 == 0 ? 40 : 0;  // now and then something else runs
    const std::array<int, kWays> costs{110, 70, 85, 125};
    chooser.took(OpKind::alltoall, false, 1 << 20, way, microseconds(costs[static_cast<size_t>(way)] + noise));
    right += way == Way::slots;
  }
  EXPECT_GT(right, 3600);
}

TEST(WayChooser, SizesKindsAndPlacementsAreApart) {
  WayChooser chooser({}, true);
  run(chooser, 40, {100, 20, 60, 80});
  EXPECT_EQ(chooser.choose(OpKind::allreduce, false, 1 << 20, true), Way::slots);
  EXPECT_EQ(chooser.choose(OpKind::allreduce, false, (1 << 21) - 1, true), Way::slots);
  EXPECT_EQ(chooser.choose(OpKind::allreduce, false, 1 << 21, true), Way::direct) << "not measured yet";
  EXPECT_EQ(chooser.choose(OpKind::allreduce, true, 1 << 20, true), Way::direct);
  EXPECT_EQ(chooser.choose(OpKind::allgather, false, 1 << 20, true), Way::direct);
}

TEST(WayChooser, WhatIsNotPossibleIsNotChosen) {
  WayChooser measured({}, true), by_hand(Way::direct, true), around(Way::around, true), crowded({}, false);
  EXPECT_EQ(run(measured, 500, {1, 50, 55, 60}, false)[0], 0);
  EXPECT_EQ(by_hand.choose(OpKind::allgather, false, 1 << 20, false), Way::slots);
  EXPECT_EQ(by_hand.choose(OpKind::allgather, false, 1 << 20, true), Way::direct);
  EXPECT_EQ(around.choose(OpKind::allgather, false, 1 << 20, true), Way::around);
  EXPECT_EQ(crowded.choose(OpKind::allgather, false, 1 << 16, false), Way::slots);
  EXPECT_EQ(crowded.choose(OpKind::allgather, false, 64 << 20, false), Way::past);
  EXPECT_EQ(run(crowded, 100, {100, 1, 1, 1})[0], 100) << "nothing is tried where ranks share cores";
}

}  // namespace
}  // namespace trireme::ccl
