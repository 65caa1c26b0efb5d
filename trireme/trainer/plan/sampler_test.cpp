#include "trireme/trainer/plan/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

namespace trireme::trainer {
namespace {

std::vector<int32_t> taken(Sampler& sampler, int64_t epoch, std::vector<int64_t> counts) {
  std::vector<int32_t> all;
  for (int64_t count : counts) {
    const auto part = sampler.take(epoch, static_cast<int64_t>(all.size()), count);
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

TEST(Sampler, EverySampleOnceHoweverTheEpochIsCut) {
  Sampler sampler(101, 7);
  const std::vector<int32_t> whole = taken(sampler, 3, {1000});
  std::vector<int32_t> sorted = whole;
  std::sort(sorted.begin(), sorted.end());
  std::vector<int32_t> expected(101);
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(sorted, expected);
  EXPECT_EQ(taken(sampler, 3, {24, 24, 12, 12, 48}), whole);
  EXPECT_EQ(sampler.take(3, 101, 5).size(), 0u);
}

TEST(Sampler, EpochsAndSeedsDifferAndRunsDoNot) {
  Sampler sampler(50, 1), again(50, 1), other(50, 2);
  EXPECT_NE(taken(sampler, 0, {50}), taken(sampler, 1, {50}));
  EXPECT_EQ(taken(sampler, 0, {50}), taken(again, 0, {50}));
  EXPECT_NE(taken(sampler, 0, {50}), taken(other, 0, {50}));
}

TEST(Deal, SharesAreEvenAndWhole) {
  std::vector<float> costs;
  for (int i = 0; i < 96; ++i) costs.push_back(static_cast<float>(20 + i * 37 % 365));
  std::vector<int32_t> samples(costs.size());
  std::iota(samples.begin(), samples.end(), 0);
  const auto bins = deal(samples, costs, 8, 12);
  std::vector<int32_t> seen;
  const float mean = std::accumulate(costs.begin(), costs.end(), 0.f) / 8;
  for (const auto& bin : bins) {
    EXPECT_EQ(bin.size(), 12u);
    float cost = 0;
    for (int32_t sample : bin) cost += costs[static_cast<size_t>(sample)];
    EXPECT_NEAR(cost, mean, 0.05f * mean);
    seen.insert(seen.end(), bin.begin(), bin.end());
  }
  EXPECT_THAT(seen, testing::UnorderedElementsAreArray(samples));
}

TEST(Deal, FewerSamplesThanBinsLeaveSomeEmpty) {
  const std::vector<float> costs{5, 3, 4};
  const std::vector<int32_t> samples{2, 0};
  const auto bins = deal(samples, costs, 3, 4);
  EXPECT_THAT(bins, testing::ElementsAre(testing::ElementsAre(0), testing::ElementsAre(2), testing::IsEmpty()));
}

}  // namespace
}  // namespace trireme::trainer
