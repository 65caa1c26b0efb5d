// Features as tensors: end to end, without padding.
#pragma once

#include <span>
#include <vector>

#include "trireme/trainer/model/qa_model.h"
#include "trireme/trainer/squad/features.h"

namespace trireme::trainer {

struct Batch {
  PackedBatch packed;
  at::Tensor starts, ends;  // of the answers, int64, [sequences]
  int64_t sequences = 0, tokens = 0;
};

// The features with these numbers, in this order. InvalidArgument if an id is beyond the model's vocabulary.
Batch make_batch(const std::vector<Feature>& features, std::span<const int32_t> which, const ModelConfig& config,
                 const PairTemplate& pair);

// What each feature takes to compute, in some unit: dense layers in proportion to its tokens, attention to their square.
std::vector<float> costs_of(const std::vector<Feature>& features, const ModelConfig& config);

}  // namespace trireme::trainer
