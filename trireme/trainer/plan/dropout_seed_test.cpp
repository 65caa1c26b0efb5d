#include "trireme/trainer/plan/dropout_seed.h"

#include <gtest/gtest.h>

#include <set>

namespace trireme::trainer {
namespace {

TEST(DropoutSeed, NoTwoAreTheSame) {
  std::set<uint64_t> all;
  for (int64_t seed : {0, 1, 2, 3, 42, 43})
    for (int64_t step = 0; step < 100; ++step)
      for (int64_t micro_batch = 0; micro_batch < 4; ++micro_batch)
        for (int rank = 0; rank < 4; ++rank) all.insert(dropout_seed(seed, step, micro_batch, rank));
  EXPECT_EQ(all.size(), 6u * 100 * 4 * 4);
}

}  // namespace
}  // namespace trireme::trainer
