// The names and shapes of transformers' parameters, in its order. Each family's layers have the same sixteen in the same
// order, which is what qa_model.cpp hands to the operators.
#include <utility>

#include "trireme/base/error.h"
#include "trireme/trainer/config/config.h"

namespace trireme::trainer {
namespace {

struct LayerNames {
  const char* layers;
  const char *query, *key, *value, *output, *attention_norm, *inner, *outer, *outer_norm;
};

constexpr LayerNames kBert{"encoder.layer.",       "attention.self.query",   "attention.self.key",
                           "attention.self.value", "attention.output.dense", "attention.output.LayerNorm",
                           "intermediate.dense",   "output.dense",           "output.LayerNorm"};
constexpr LayerNames kDistilbert{"transformer.layer.", "attention.q_lin",   "attention.k_lin",
                                 "attention.v_lin",    "attention.out_lin", "sa_layer_norm",
                                 "ffn.lin1",           "ffn.lin2",          "output_layer_norm"};

const char* prefix_of(Family family) {
  switch (family) {
    case Family::bert: return "bert.";
    case Family::roberta:
    case Family::xlm_roberta: return "roberta.";
    case Family::electra: return "electra.";
    case Family::distilbert: return "distilbert.";
  }
  return "";
}

class List {
 public:
  void table(const std::string& name, int64_t rows, int64_t width) { shapes_.push_back({name + ".weight", {rows, width}}); }
  void linear(const std::string& name, int64_t out, int64_t in) {
    shapes_.push_back({name + ".weight", {out, in}});
    shapes_.push_back({name + ".bias", {out}});
  }
  void norm(const std::string& name, int64_t width) {
    shapes_.push_back({name + ".weight", {width}});
    shapes_.push_back({name + ".bias", {width}});
  }
  std::vector<ParameterShape> take() { return std::move(shapes_); }

 private:
  std::vector<ParameterShape> shapes_;
};

}  // namespace

std::vector<ParameterShape> parameter_shapes(const ModelConfig& config) {
  const std::string prefix = prefix_of(config.family);
  const std::string embeddings = prefix + "embeddings.";
  List list;
  list.table(embeddings + "word_embeddings", config.vocabulary, config.embedding);
  list.table(embeddings + "position_embeddings", config.positions, config.embedding);
  if (config.types > 0) list.table(embeddings + "token_type_embeddings", config.types, config.embedding);
  list.norm(embeddings + "LayerNorm", config.embedding);
  if (config.embedding != config.hidden) list.linear(prefix + "embeddings_project", config.hidden, config.embedding);

  const LayerNames& names = config.family == Family::distilbert ? kDistilbert : kBert;
  for (int64_t i = 0; i < config.layers; ++i) {
    const std::string layer = str(prefix, names.layers, i, ".");
    for (const char* name : {names.query, names.key, names.value, names.output})
      list.linear(layer + name, config.hidden, config.hidden);
    list.norm(layer + names.attention_norm, config.hidden);
    list.linear(layer + names.inner, config.inner, config.hidden);
    list.linear(layer + names.outer, config.hidden, config.inner);
    list.norm(layer + names.outer_norm, config.hidden);
  }
  list.linear("qa_outputs", 2, config.hidden);
  return list.take();
}

}  // namespace trireme::trainer
