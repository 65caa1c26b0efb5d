#include "trireme/trainer/config/config.h"

#include <array>

#include "trireme/base/error.h"

namespace trireme::trainer {
namespace {

struct FamilyName {
  Family family;
  const char* model_type;
  const char* architecture;
};

constexpr std::array<FamilyName, 5> kFamilies{{
    {Family::bert, "bert", "BertForQuestionAnswering"},
    {Family::roberta, "roberta", "RobertaForQuestionAnswering"},
    {Family::xlm_roberta, "xlm-roberta", "XLMRobertaForQuestionAnswering"},
    {Family::electra, "electra", "ElectraForQuestionAnswering"},
    {Family::distilbert, "distilbert", "DistilBertForQuestionAnswering"},
}};

const FamilyName& entry_of(Family family) { return kFamilies[static_cast<size_t>(family)]; }

Family family_of(const JsonPlace& config) {
  const std::string type = config["model_type"].string();
  std::string known;
  for (const FamilyName& each : kFamilies) {
    if (type == each.model_type) return each.family;
    known += str(known.empty() ? "" : ", ", each.model_type);
  }
  config["model_type"].refuse(str("\"", type, "\" is not supported; ", known, " are"));
}

bool is_tanh(const JsonPlace& activation) {
  const std::string& name = activation.string();
  if (name == "gelu") return false;
  if (name == "gelu_new" || name == "gelu_pytorch_tanh" || name == "gelu_fast") return true;
  activation.refuse(str("\"", name, "\" is not supported; gelu, gelu_new, gelu_fast and gelu_pytorch_tanh are"));
}

// Both far above any model. Products of two sizes do not overflow, and the names of so many layers' parameters, which are
// made before a weight is looked at, take some MB.
constexpr int64_t kMostOfASize = int64_t{1} << 30, kMostLayers = 4096;

int64_t positive(const JsonPlace& config, const char* key, int64_t most = kMostOfASize) {
  const int64_t value = config[key].integer();
  if (value < 1 || value > most) config[key].refuse(str("is ", value, "; it must be between 1 and ", most));
  return value;
}

double probability(const JsonPlace& config, const char* key, double otherwise) {
  const double p = config.number_or(key, otherwise);
  if (!(p >= 0 && p < 1)) config[key].refuse(str("is ", p, "; it must be at least 0 and below 1"));
  return p;
}

// BERT's names, which RoBERTa, XLM-R and ELECTRA share.
void read_bert(const JsonPlace& config, ModelConfig& into) {
  into.layers = positive(config, "num_hidden_layers", kMostLayers);
  into.heads = positive(config, "num_attention_heads");
  into.hidden = positive(config, "hidden_size");
  into.inner = positive(config, "intermediate_size");
  into.embedding = into.family == Family::electra ? positive(config, "embedding_size") : into.hidden;
  into.types = positive(config, "type_vocab_size");
  into.hidden_dropout = probability(config, "hidden_dropout_prob", 0.1);
  into.attention_dropout = probability(config, "attention_probs_dropout_prob", 0.1);
  into.attention_output_dropout = into.hidden_dropout;
  into.layer_norm_eps = config.number_or("layer_norm_eps", 1e-12);
  into.gelu_by_tanh = config.has("hidden_act") && is_tanh(config["hidden_act"]);
  into.padding_id = config.integer_or("pad_token_id", into.counts_from_padding() ? 1 : 0);
  if (config.string_or("position_embedding_type", "absolute") != "absolute")
    config["position_embedding_type"].refuse("only \"absolute\" positions are supported");
  if (config.boolean_or("is_decoder", false)) config["is_decoder"].refuse("a decoder cannot find answers in a text");
}

void read_distilbert(const JsonPlace& config, ModelConfig& into) {
  into.layers = positive(config, "n_layers", kMostLayers);
  into.heads = positive(config, "n_heads");
  into.hidden = into.embedding = positive(config, "dim");
  into.inner = positive(config, "hidden_dim");
  into.hidden_dropout = probability(config, "dropout", 0.1);
  into.attention_dropout = probability(config, "attention_dropout", 0.1);
  into.attention_output_dropout = 0;
  into.head_dropout = probability(config, "qa_dropout", 0.1);
  into.gelu_by_tanh = config.has("activation") && is_tanh(config["activation"]);
  into.padding_id = config.integer_or("pad_token_id", 0);
}

}  // namespace

const char* name_of(Family family) { return entry_of(family).model_type; }

ModelConfig read_config(const std::filesystem::path& config_json) {
  ModelConfig result;
  result.file = config_json;
  result.json = read_json(config_json);
  const JsonPlace config(result.json, config_json.string());
  result.family = family_of(config);
  if (result.family == Family::distilbert)
    read_distilbert(config, result);
  else
    read_bert(config, result);
  result.vocabulary = positive(config, "vocab_size");
  result.positions = positive(config, "max_position_embeddings");
  result.initializer_range = config.number_or("initializer_range", 0.02);
  if (result.hidden % result.heads != 0)
    config.refuse(str("a width of ", result.hidden, " cannot be shared out to ", result.heads, " heads"));
  if (result.padding_id < 0 || result.padding_id >= result.vocabulary)
    config.refuse(str("pad_token_id ", result.padding_id, " is not in a vocabulary of ", result.vocabulary));
  if (result.longest() < 1) config.refuse(str("max_position_embeddings ", result.positions, " leaves no place for a token"));
  return result;
}

std::string config_for_question_answering(const ModelConfig& config) {
  Json json = config.json;
  json["architectures"] = {entry_of(config.family).architecture};
  json["torch_dtype"] = "float32";
  json.erase("dtype");
  json.erase("_name_or_path");
  // Of the base model, a classifier's perhaps: transformers would make a head of that size.
  for (const char* key : {"id2label", "label2id", "num_labels"}) json.erase(key);
  return json.dump(2) + "\n";
}

}  // namespace trireme::trainer
