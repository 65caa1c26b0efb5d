#include "trireme/trainer/model/qa_model.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>

#include "trireme/base/error.h"
#include "trireme/torch_ext/ops/ops.h"
#include "trireme/trainer/model/recompute.h"

namespace trireme::trainer {
namespace {

constexpr size_t kLayerParameters = 16;      // of which
constexpr size_t kAttentionParameters = 10;  // are of the first half

bool decays(const std::string& name) {
  return !name.ends_with(".bias") && name.find("LayerNorm") == std::string::npos &&
         name.find("layer_norm") == std::string::npos;
}

// Before the weights show whether they have this shape.
at::Tensor allocate(const ParameterShape& parameter, const ModelConfig& config) {
  try {
    return at::empty(parameter.shape, at::kFloat).set_requires_grad(true);
  } catch (const c10::Error&) {
    throw InvalidArgument(trireme::str(config.file.string(), ": there is no memory for ", parameter.name, " of shape ",
                                       at::IntArrayRef(parameter.shape), "; are its sizes right?"));
  }
}

}  // namespace

QaModel::QaModel(const ModelConfig& config) : config_(config) {
  for (const ParameterShape& each : parameter_shapes(config)) {
    at::Tensor value = allocate(each, config);
    parameters_.push_back({each.name, std::move(value), decays(each.name)});
  }
  // The head has two parameters.
  first_of_layers_ = parameters_.size() - 2 - kLayerParameters * static_cast<size_t>(config.layers);
}

std::vector<at::Tensor> QaModel::values(size_t begin, size_t count) const {
  std::vector<at::Tensor> values;
  for (size_t i = begin; i < begin + count; ++i) values.push_back(parameters_[i].value);
  return values;
}

at::Tensor QaModel::embed(const PackedBatch& batch, bool training) const {
  size_t next = 0;
  const auto value = [&] { return parameters_[next++].value; };
  const int64_t padding_of_positions = config_.counts_from_padding() ? config_.padding_id : -1;
  const ops::Embedding word{batch.ids, value(), config_.padding_id};
  const ops::Embedding position{batch.positions, value(), padding_of_positions};
  const ops::Embedding type = config_.types > 0 ? ops::Embedding{batch.types, value()} : ops::Embedding{};
  const at::Tensor gamma = value(), beta = value();
  const at::Tensor x =
      ops::embedding(word, position, type, gamma, beta, training ? config_.hidden_dropout : 0, config_.layer_norm_eps);
  if (next == first_of_layers_) return x;
  const at::Tensor weight = value(), bias = value();  // ELECTRA's, where the embeddings are narrower than the layers
  return at::linear(x, weight, bias);
}

at::Tensor QaModel::layer(int64_t index, const at::Tensor& x, const at::Tensor& cu_seqlens, bool training) const {
  const size_t first = first_of_layers_ + kLayerParameters * static_cast<size_t>(index);
  const auto p = [&](double dropout) { return training ? dropout : 0; };
  const auto compute = [=, this](const at::Tensor& x) {
    const at::Tensor attended =
        ops::self_attention_block(x, values(first, kAttentionParameters), cu_seqlens, config_.heads,
                                  p(config_.attention_dropout), p(config_.attention_output_dropout), config_.layer_norm_eps);
    return ops::feed_forward_block(attended, values(first + kAttentionParameters, kLayerParameters - kAttentionParameters),
                                   config_.gelu_by_tanh, p(config_.hidden_dropout), config_.layer_norm_eps);
  };
  return checkpointing_ && training ? recompute(compute, x) : compute(x);
}

at::Tensor QaModel::forward(const PackedBatch& batch, bool training) const {
  at::Tensor x = embed(batch, training);
  for (int64_t i = 0; i < config_.layers; ++i) x = layer(i, x, batch.cu_seqlens, training);
  if (training && config_.head_dropout > 0) x = ops::dropout(x, config_.head_dropout);
  const std::vector<at::Tensor> head = values(parameters_.size() - 2, 2);
  return at::linear(x, head[0], head[1]);
}

QaModel QaModel::in_bf16() const {
  QaModel copy = *this;
  for (Parameter& each : copy.parameters_) each.value = each.value.detach().to(at::kBFloat16);
  return copy;
}

}  // namespace trireme::trainer
