// What config.json says of an encoder: BERT and MiniLM, RoBERTa, XLM-R, ELECTRA, DistilBERT.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "trireme/trainer/json/json.h"

namespace trireme::trainer {

enum class Family { bert, roberta, xlm_roberta, electra, distilbert };

// "bert": the model_type of config.json.
const char* name_of(Family family);

struct ModelConfig {
  Family family = Family::bert;
  int64_t layers = 0, heads = 0;
  int64_t hidden = 0, inner = 0, embedding = 0;  // widths: of the layers, between the two dense ones, of the embeddings
  int64_t vocabulary = 0, positions = 0, types = 0;
  int64_t padding_id = 0;
  bool gelu_by_tanh = false;
  double hidden_dropout = 0.1, attention_dropout = 0.1, head_dropout = 0;
  // DistilBERT has no dropout between the attention's output and its LayerNorm.
  double attention_output_dropout = 0.1;
  double layer_norm_eps = 1e-12;
  double initializer_range = 0.02;
  std::filesystem::path file;
  Json json;  // as it was read

  // The longest sequence. RoBERTa's positions begin after the padding id.
  int64_t longest() const { return positions - first_position(); }
  int64_t first_position() const { return counts_from_padding() ? padding_id + 1 : 0; }
  bool counts_from_padding() const { return family == Family::roberta || family == Family::xlm_roberta; }
};

// InvalidArgument names the file and what in it is not supported or does not fit together.
ModelConfig read_config(const std::filesystem::path& config_json);

// The parameters that a model has, by transformers' names ("bert.embeddings.word_embeddings.weight", ...) and in its order.
struct ParameterShape {
  std::string name;
  std::vector<int64_t> shape;
};
std::vector<ParameterShape> parameter_shapes(const ModelConfig& config);

// config.json of a model for question answering, to be written beside its weights.
std::string config_for_question_answering(const ModelConfig& config);

}  // namespace trireme::trainer
