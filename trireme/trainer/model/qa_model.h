// An encoder with a head for question answering, on packed batches, by the fused operators of trireme/torch_ext/ops.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "trireme/trainer/config/config.h"

namespace trireme::trainer {

// Sequences end to end: no padding. The tensors are int64; cu_seqlens says where each begins, and where the last ends.
struct PackedBatch {
  at::Tensor ids, types, positions;  // [T]
  at::Tensor cu_seqlens;             // [sequences + 1]
};

struct Parameter {
  std::string name;  // transformers' own
  at::Tensor value;
  bool decays;  // weight decay applies: neither a bias nor of a LayerNorm
};

// Owns its parameters, in the order in which transformers lists them. One thread at a time.
class QaModel {
 public:
  // Parameters of the right shapes, without values. InvalidArgument if there is no memory for one.
  explicit QaModel(const ModelConfig& config);

  const ModelConfig& config() const { return config_; }
  std::vector<Parameter>& parameters() { return parameters_; }
  const std::vector<Parameter>& parameters() const { return parameters_; }

  // The logits of where an answer starts and ends: [T, 2]. With `training`, dropout draws its masks from torch's generator.
  at::Tensor forward(const PackedBatch& batch, bool training) const;

  // A copy whose parameters are bfloat16, without gradients.
  QaModel in_bf16() const;

  // In the backward pass each layer is computed again from its input, instead of being kept.
  void checkpoint_gradients(bool on) { checkpointing_ = on; }

 private:
  at::Tensor embed(const PackedBatch& batch, bool training) const;
  at::Tensor layer(int64_t index, const at::Tensor& x, const at::Tensor& cu_seqlens, bool training) const;
  std::vector<at::Tensor> values(size_t begin, size_t count) const;

  ModelConfig config_;
  std::vector<Parameter> parameters_;
  size_t first_of_layers_ = 0;
  bool checkpointing_ = false;
};

}  // namespace trireme::trainer
