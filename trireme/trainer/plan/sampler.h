// Which samples a step takes, and which of them go to which rank.
//
// An epoch is a shuffle of all samples that depends on the seed and the epoch's number alone. A step takes the next ones of
// it, as many as all ranks together hold; where it stands is one number, the samples that are done. So a run goes on at any
// moment, with any number of ranks, and no sample of an epoch is lost or seen twice.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace trireme::trainer {

// Owns the shuffle of one epoch. One thread at a time.
class Sampler {
 public:
  Sampler(int64_t samples, uint64_t seed) : samples_(samples), seed_(seed) {}

  int64_t samples() const { return samples_; }
  // Up to `count` samples of the epoch, from `first` on. Valid until the next call.
  std::span<const int32_t> take(int64_t epoch, int64_t first, int64_t count);

 private:
  int64_t samples_;
  uint64_t seed_;
  int64_t shuffled_epoch_ = -1;
  std::vector<int32_t> order_;
};

// Deals samples out to `bins` micro-batches of about equal cost, none with more than `most` samples. costs[sample] is what a
// sample takes. The same on every rank. The longest first, each to the bin that has least: no bin exceeds the mean by more
// than one sample.
std::vector<std::vector<int32_t>> deal(std::span<const int32_t> samples, std::span<const float> costs, size_t bins,
                                       size_t most);

}  // namespace trireme::trainer
