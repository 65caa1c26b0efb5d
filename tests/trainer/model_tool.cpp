// Runs a model on a batch and writes what comes out, for a comparison with transformers:
//   model_tool MODEL_DIR BATCH.json OUT.safetensors [--checkpointing]
// BATCH.json: {"questions": [[ids]], "contexts": [[ids]], "before": [ids], "between": [ids], "after": [ids], "second_type":
// n, "starts": [n], "ends": [n]}. OUT: "logits" [T, 2], "loss", and "grad.NAME" of every parameter.
#include <torch/csrc/autograd/autograd.h>

#include <cstring>
#include <iostream>

#include "trireme/torch_ext/ops/ops.h"
#include "trireme/trainer/json/json.h"
#include "trireme/trainer/model/weights.h"
#include "trireme/trainer/safetensors/safetensors.h"
#include "trireme/trainer/train/batch.h"

namespace trireme::trainer {
namespace {

std::vector<Feature> features_of(const Json& batch, const PairTemplate& pair) {
  std::vector<Feature> features;
  for (size_t i = 0; i < batch["questions"].size(); ++i) {
    Feature feature;
    const auto append = [&](const std::vector<int32_t>& ids) {
      feature.ids.insert(feature.ids.end(), ids.begin(), ids.end());
    };
    append(pair.before);
    append(batch["questions"][i]);
    append(pair.between);
    feature.context_begin = static_cast<uint32_t>(feature.ids.size());
    append(batch["contexts"][i]);
    feature.context_end = static_cast<uint32_t>(feature.ids.size());
    append(pair.after);
    feature.start_position = batch["starts"][i];
    feature.end_position = batch["ends"][i];
    features.push_back(std::move(feature));
  }
  return features;
}

void run(const std::string& directory, const std::string& input, const std::string& output, bool checkpointing) {
  const Json json = read_json(input);
  PairTemplate pair{json["before"], json["between"], json["after"]};
  pair.second_type = pair.after_type = json["second_type"];
  QaModel model(read_config(directory + "/config.json"));
  load_weights(model, directory, 0);
  model.checkpoint_gradients(checkpointing);
  const std::vector<Feature> features = features_of(json, pair);
  std::vector<int32_t> all(features.size());
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int32_t>(i);
  const Batch batch = make_batch(features, all, model.config(), pair);
  // With --checkpointing the layers are computed as in training; configurations of the test have no dropout.
  const at::Tensor logits = model.forward(batch.packed, checkpointing);
  const at::Tensor loss = ops::span_loss(logits, batch.packed.cu_seqlens, batch.starts, batch.ends);
  torch::autograd::backward({loss}, {});

  std::vector<at::Tensor> kept{logits.detach().contiguous(), loss.detach().reshape({1})};
  std::vector<TensorEntry> entries;
  const auto add = [&](const std::string& name, const at::Tensor& value) {
    entries.push_back(
        {name, Dtype::f32, value.sizes().vec(), {static_cast<const std::byte*>(value.const_data_ptr()), value.nbytes()}});
  };
  add("logits", kept[0]);
  add("loss", kept[1]);
  for (const Parameter& each : model.parameters()) add("grad." + each.name, each.value.grad());
  write_safetensors(output, entries, {});
}

}  // namespace
}  // namespace trireme::trainer

int main(int count, char** values) {
  try {
    trireme::trainer::run(values[1], values[2], values[3], count > 4 && std::strcmp(values[4], "--checkpointing") == 0);
    return 0;
  } catch (const std::exception& error) {
    std::cerr << error.what() << std::endl;
    return 1;
  }
}
