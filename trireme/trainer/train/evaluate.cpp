#include "trireme/trainer/train/evaluate.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>

#include <numeric>

#include "trireme/trainer/plan/sampler.h"

namespace trireme::trainer {
namespace {

// Where each feature's tokens begin among those of all.
std::vector<int64_t> offsets_of(const std::vector<Feature>& features) {
  std::vector<int64_t> offsets{0};
  for (const Feature& feature : features) offsets.push_back(offsets.back() + static_cast<int64_t>(feature.ids.size()));
  return offsets;
}

}  // namespace

Logits::Logits(const std::vector<Feature>& features, at::Tensor values) : values_(std::move(values)) {
  const float* start = values_[0].const_data_ptr<float>();
  const float* end = values_[1].const_data_ptr<float>();
  for (const Feature& feature : features) {
    const size_t tokens = feature.ids.size();
    views_.push_back({{start, tokens}, {end, tokens}});
    start += tokens;
    end += tokens;
  }
}

Logits compute_logits(const QaModel& model, const std::vector<Feature>& features, const PairTemplate& pair,
                      int64_t batch_size, const World& world, const std::function<void()>& between_batches) {
  const at::NoGradGuard no_grad;
  std::vector<int32_t> all(features.size());
  std::iota(all.begin(), all.end(), 0);
  const auto ranks = static_cast<size_t>(world.size());
  const std::vector<int32_t> mine =
      deal(all, costs_of(features, model.config()), ranks, all.size())[static_cast<size_t>(world.rank())];
  const std::vector<int64_t> offsets = offsets_of(features);
  at::Tensor values = at::zeros({2, offsets.back()}, at::kFloat);
  for (size_t done = 0; done < mine.size();) {
    if (between_batches) between_batches();
    const std::span<const int32_t> which =
        std::span(mine).subspan(done, std::min(static_cast<size_t>(batch_size), mine.size() - done));
    const Batch batch = make_batch(features, which, model.config(), pair);
    const at::Tensor logits = model.forward(batch.packed, false).to(at::kFloat).t();
    int64_t from = 0;
    for (int32_t i : which) {
      const int64_t to = offsets[static_cast<size_t>(i)], count = offsets[static_cast<size_t>(i) + 1] - to;
      values.narrow(1, to, count).copy_(logits.narrow(1, from, count));
      from += count;
    }
    done += which.size();
  }
  // Each place was filled by one rank, and is zero on the others.
  world.sum(values);
  return Logits(features, values);
}

}  // namespace trireme::trainer
