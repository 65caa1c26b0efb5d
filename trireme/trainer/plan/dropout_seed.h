// Where dropout's random numbers begin.
#pragma once

#include <cstdint>
#include <initializer_list>

namespace trireme::trainer {

// For one micro-batch of one rank, in every run. Each number is mixed before the next comes in, so that seed 42 at step 3 is
// not seed 43 at step 2.
inline uint64_t dropout_seed(int64_t seed, int64_t step, int64_t micro_batch, int rank) {
  uint64_t mixed = 0;
  for (const int64_t each : {seed, step, micro_batch, static_cast<int64_t>(rank)}) {
    mixed = (mixed ^ static_cast<uint64_t>(each)) * 0x9e3779b97f4a7c15;
    mixed ^= mixed >> 29;
  }
  return mixed;
}

}  // namespace trireme::trainer
