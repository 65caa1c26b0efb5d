// The numbers at the end of training, evaluation and prediction: train_results.json and its siblings, and the table on the
// terminal, as Hugging Face's Trainer writes them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "trireme/trainer/json/json.h"

namespace trireme::trainer {

// <split>_runtime, _samples_per_second, _steps_per_second, rounded as Hugging Face rounds them; the last two only where time
// has passed.
Json speed_metrics(std::string_view split, double seconds, int64_t samples, int64_t steps);

// Writes OUTPUT_DIR/<split>_results.json, and puts the same into all_results.json beside what other splits have there. Both
// atomically. An all_results.json that is no JSON object is written anew, with a warning.
void save_metrics(const std::filesystem::path& output_dir, std::string_view split, const Json& metrics);

// "***** train metrics *****" and a line for each metric, in order of names; runtimes as 0:00:12.34, total_flos in GF.
std::string metrics_table(std::string_view split, const Json& metrics);

}  // namespace trireme::trainer
