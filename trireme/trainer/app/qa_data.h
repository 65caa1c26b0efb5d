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

// From --train_file and its siblings, or --dataset_name. `longest` is what the model can take; a tokenizer may set a lower
// limit. InvalidArgument, IoError.
QaData load_data(const QaOptions& options, Split split, const Tokenizer& tokenizer, int64_t longest, const HubSettings& hub,
                 int threads);

// Whether a test set has come with its answers.
bool can_be_scored(const std::vector<Example>& examples, bool version_2_with_negative);

// Where the model or the tokenizer takes less than --max_seq_length; else empty.
std::string shorter_sentence(int64_t max_seq_length, int64_t longest, const Tokenizer& tokenizer);

}  // namespace trireme::trainer
