#include "trireme/trainer/plan/sampler.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "trireme/base/error.h"

namespace trireme::trainer {
namespace {

// SplitMix64: the same on every machine, unlike the standard library's distributions.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  uint64_t next() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }

  // Evenly among 0 .. bound - 1: what lies beyond a multiple of the bound is drawn again.
  uint64_t below(uint64_t bound) {
    const uint64_t uneven = -bound % bound;  // 2^64 mod bound
    uint64_t value = next();
    while (value < uneven) value = next();
    return value % bound;
  }

 private:
  uint64_t state_;
};

}  // namespace

std::span<const int32_t> Sampler::take(int64_t epoch, int64_t first, int64_t count) {
  TRIREME_ENFORCE(first >= 0 && first <= samples_ && count >= 0, "samples ", first, " and ", count, " more of ", samples_);
  if (epoch != shuffled_epoch_) {
    order_.resize(static_cast<size_t>(samples_));
    std::iota(order_.begin(), order_.end(), 0);
    Random random(Random(seed_).next() + static_cast<uint64_t>(epoch));
    for (size_t i = order_.size(); i > 1; --i) std::swap(order_[i - 1], order_[random.below(i)]);
    shuffled_epoch_ = epoch;
  }
  return std::span(order_).subspan(static_cast<size_t>(first), static_cast<size_t>(std::min(count, samples_ - first)));
}

std::vector<std::vector<int32_t>> deal(std::span<const int32_t> samples, std::span<const float> costs, size_t bins,
                                       size_t most) {
  TRIREME_ENFORCE(samples.size() <= bins * most, samples.size(), " samples do not fit into ", bins, " bins of ", most);
  std::vector<int32_t> longest_first(samples.begin(), samples.end());
  std::stable_sort(longest_first.begin(), longest_first.end(),
                   [&](int32_t a, int32_t b) { return costs[static_cast<size_t>(a)] > costs[static_cast<size_t>(b)]; });
  std::vector<std::vector<int32_t>> dealt(bins);
  std::vector<double> cost(bins, 0);
  for (int32_t sample : longest_first) {
    size_t best = bins;
    for (size_t bin = 0; bin < bins; ++bin)
      if (dealt[bin].size() < most && (best == bins || cost[bin] < cost[best])) best = bin;
    dealt[best].push_back(sample);
    cost[best] += costs[static_cast<size_t>(sample)];
  }
  return dealt;
}

}  // namespace trireme::trainer
