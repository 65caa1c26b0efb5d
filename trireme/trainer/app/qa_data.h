// The data of `trireme qa`: which files, read and made into features.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "trireme/trainer/hub/hub.h"
#include "trireme/trainer/options/qa_options.h"
#include "trireme/trainer/squad/features.h"

namespace trireme::trainer {

enum class Split { train, validation, test };

// A file's examples and their features.
struct QaData {
  std::filesystem::path file;
  std::vector<Example> examples;
  std::vector<Feature> features;
};

// From --train_file and its siblings, or --dataset_name. `longest` is what the model can take. InvalidArgument, IoError.
QaData load_data(const QaOptions& options, Split split, const Tokenizer& tokenizer, int64_t longest, const HubSettings& hub,
                 int threads);

// Where the model takes less than --max_seq_length.
std::string shorter_sentence(int64_t max_seq_length, int64_t longest);

}  // namespace trireme::trainer
