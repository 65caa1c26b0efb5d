// The logits of every feature, computed by all ranks together.
#pragma once

#include <functional>
#include <vector>

#include "trireme/trainer/squad/postprocess.h"
#include "trireme/trainer/train/batch.h"
#include "trireme/trainer/train/world.h"

namespace trireme::trainer {

// Owns the numbers that its views show.
class Logits {
 public:
  Logits(const std::vector<Feature>& features, at::Tensor values);
  const std::vector<FeatureLogits>& of_features() const { return views_; }

 private:
  at::Tensor values_;  // [2, all tokens]: starts and ends, feature by feature
  std::vector<FeatureLogits> views_;
};

// Collective; every rank gets all of them. `batch_size` features are computed at a time; `between_batches` may end it all by
// an exception.
Logits compute_logits(const QaModel& model, const std::vector<Feature>& features, const PairTemplate& pair,
                      int64_t batch_size, const World& world, const std::function<void()>& between_batches = {});

}  // namespace trireme::trainer
