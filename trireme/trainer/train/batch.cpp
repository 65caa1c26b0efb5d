#include "trireme/trainer/train/batch.h"

#include <ATen/ops/empty.h>

#include "trireme/base/error.h"

namespace trireme::trainer {
namespace {

at::Tensor int64s(int64_t count) { return at::empty({count}, at::kLong); }

// RoBERTa counts the tokens that are not padding, from padding_id + 1 on; a padding token in a text has its own id as
// position.
void write_positions(const std::vector<int32_t>& ids, const ModelConfig& config, int64_t* positions) {
  int64_t next = config.first_position();
  for (size_t i = 0; i < ids.size(); ++i)
    positions[i] = config.counts_from_padding() && ids[i] == config.padding_id ? config.padding_id : next++;
}

}  // namespace

Batch make_batch(const std::vector<Feature>& features, std::span<const int32_t> which, const ModelConfig& config,
                 const PairTemplate& pair) {
  Batch batch;
  batch.sequences = static_cast<int64_t>(which.size());
  for (int32_t i : which) batch.tokens += static_cast<int64_t>(features[static_cast<size_t>(i)].ids.size());
  PackedBatch& packed = batch.packed;
  packed = {int64s(batch.tokens), int64s(batch.tokens), int64s(batch.tokens), int64s(batch.sequences + 1)};
  batch.starts = int64s(batch.sequences);
  batch.ends = int64s(batch.sequences);
  auto* ids = packed.ids.data_ptr<int64_t>();
  auto* types = packed.types.data_ptr<int64_t>();
  auto* positions = packed.positions.data_ptr<int64_t>();
  auto* cu_seqlens = packed.cu_seqlens.data_ptr<int64_t>();
  int64_t begin = cu_seqlens[0] = 0;
  for (size_t i = 0; i < which.size(); ++i) {
    const Feature& feature = features[static_cast<size_t>(which[i])];
    for (int32_t id : feature.ids)
      if (id < 0 || id >= config.vocabulary)
        throw InvalidArgument(str("the tokenizer gives the id ", id, "; the model's vocabulary has ", config.vocabulary,
                                  ": do the tokenizer's files and config.json belong together?"));
    std::copy(feature.ids.begin(), feature.ids.end(), ids + begin);
    const std::vector<int32_t> type = type_ids(feature, pair);
    std::copy(type.begin(), type.end(), types + begin);
    write_positions(feature.ids, config, positions + begin);
    begin = cu_seqlens[i + 1] = begin + static_cast<int64_t>(feature.ids.size());
    batch.starts.data_ptr<int64_t>()[i] = feature.start_position;
    batch.ends.data_ptr<int64_t>()[i] = feature.end_position;
  }
  return batch;
}

std::vector<float> costs_of(const std::vector<Feature>& features, const ModelConfig& config) {
  // Of a layer, per token: 8 h^2 + 4 h i operations in dense layers, 4 h for each token attended to. Those of attention run
  // at half the speed (bench/kernels).
  const auto hidden = static_cast<float>(config.hidden), inner = static_cast<float>(config.inner);
  std::vector<float> costs;
  for (const Feature& feature : features) {
    const auto tokens = static_cast<float>(feature.ids.size());
    costs.push_back(tokens * (8 * hidden + 4 * inner + 2 * 4 * tokens));
  }
  return costs;
}

}  // namespace trireme::trainer
