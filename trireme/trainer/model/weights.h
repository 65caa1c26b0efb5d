// A model's weights from and to safetensors files.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "trireme/trainer/model/qa_model.h"

namespace trireme::trainer {

struct LoadedWeights {
  std::vector<std::string> new_ones;  // not in the file: the head of a model that was trained for something else
};

// Fills the model from a directory's model.safetensors or its shards, whatever floating-point type they have. Files of a
// bare encoder, without the family's prefix in their names, and those with TensorFlow's gamma and beta are read too. A head
// that is missing is drawn from `seed`. InvalidArgument names the tensor that is missing, or has another shape or type.
LoadedWeights load_weights(QaModel& model, const std::filesystem::path& directory, uint64_t seed);

// Writes model.safetensors, in fp32, as transformers' save_pretrained does. weights[i] is that of parameter i.
void save_weights(const std::filesystem::path& file, const QaModel& model, const std::vector<at::Tensor>& weights);

}  // namespace trireme::trainer
