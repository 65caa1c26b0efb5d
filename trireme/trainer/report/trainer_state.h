// trainer_state.json, as Hugging Face's Trainer writes and reads it: where a run stands, and what it has logged.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "trireme/trainer/json/json.h"

namespace trireme::trainer {

struct TrainerState {
  std::optional<double> epoch;
  int64_t global_step = 0;
  int64_t max_steps = 0;
  int64_t num_train_epochs = 0;  // rounded up
  int64_t num_input_tokens_seen = 0;
  double total_flos = 0;
  std::optional<int64_t> train_batch_size;
  int64_t logging_steps = 500, eval_steps = 500, save_steps = 500;  // no shares: steps_of() has been applied
  Json log_history = Json::array();
  std::optional<double> best_metric;
  std::optional<int64_t> best_global_step;
  std::optional<std::string> best_model_checkpoint;
  bool is_local_process_zero = true, is_world_process_zero = true;
  Json stateful_callbacks = Json::object();  // of Hugging Face's; kept as they were read

  // Adds an entry to log_history: what is given ("loss", "grad_norm", "learning_rate", "eval_f1", "train_runtime", ...),
  // then epoch and step.
  void log(Json entry);
};

// The file's text: keys in order, two spaces, as Python's json writes it. A number that is none (a loss of NaN) becomes
// null.
std::string to_text(const TrainerState& state);
void save_state(const TrainerState& state, const std::filesystem::path& file);

// Ours or Hugging Face's. Python's NaN and Infinity, which are no JSON, are read as null. InvalidArgument says what is wrong
// and where.
TrainerState parse_state(std::string text, const std::string& source);
TrainerState load_state(const std::filesystem::path& file);

}  // namespace trireme::trainer
