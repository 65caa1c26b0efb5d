#include "trireme/trainer/report/trainer_state.h"

#include <cmath>

#include "trireme/trainer/files/files.h"

namespace trireme::trainer {
namespace {

template <class T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

// A whole number that Python may have written as 500.0: a flag such as --logging_steps is a float there.
int64_t whole(const JsonPlace& place, std::string_view key, int64_t otherwise) {
  if (!place.has(key)) return otherwise;
  const double value = place[key].number();
  if (value != std::floor(value) || std::abs(value) > 9e15) place[key].refuse("a whole number is wanted");
  return static_cast<int64_t>(value);
}

std::optional<int64_t> whole(const JsonPlace& place, std::string_view key) {
  return place.has(key) ? std::optional(whole(place, key, 0)) : std::nullopt;
}

std::optional<double> number(const JsonPlace& place, std::string_view key) {
  return place.has(key) ? std::optional(place[key].number()) : std::nullopt;
}

}  // namespace

void TrainerState::log(Json entry) {
  if (epoch) entry["epoch"] = *epoch;
  entry["step"] = global_step;
  log_history.push_back(std::move(entry));
}

std::string to_text(const TrainerState& state) {
  // nlohmann::json keeps its keys in order.
  const nlohmann::json json = Json{{"best_global_step", or_null(state.best_global_step)},
                                   {"best_metric", or_null(state.best_metric)},
                                   {"best_model_checkpoint", or_null(state.best_model_checkpoint)},
                                   {"epoch", or_null(state.epoch)},
                                   {"eval_steps", state.eval_steps},
                                   {"global_step", state.global_step},
                                   {"is_hyper_param_search", false},
                                   {"is_local_process_zero", state.is_local_process_zero},
                                   {"is_world_process_zero", state.is_world_process_zero},
                                   {"log_history", state.log_history},
                                   {"logging_steps", state.logging_steps},
                                   {"max_steps", state.max_steps},
                                   {"num_input_tokens_seen", state.num_input_tokens_seen},
                                   {"num_train_epochs", state.num_train_epochs},
                                   {"save_steps", state.save_steps},
                                   {"stateful_callbacks", state.stateful_callbacks},
                                   {"total_flos", state.total_flos},
                                   {"train_batch_size", or_null(state.train_batch_size)},
                                   {"trial_name", nullptr},
                                   {"trial_params", nullptr}};
  return json.dump(2) + "\n";
}

void save_state(const TrainerState& state, const std::filesystem::path& file) {
  write_file_atomically(file, to_text(state));
}

TrainerState parse_state(std::string text, const std::string& source) {
  const Json document = parse_python_json(std::move(text), source);
  const JsonPlace place(document, source);
  place["global_step"].integer();  // without it, it is some other file
  TrainerState state;
  state.epoch = number(place, "epoch");
  state.global_step = whole(place, "global_step", 0);
  state.max_steps = whole(place, "max_steps", 0);
  state.num_train_epochs = whole(place, "num_train_epochs", 0);
  state.num_input_tokens_seen = whole(place, "num_input_tokens_seen", 0);
  state.total_flos = place.number_or("total_flos", 0);
  state.train_batch_size = whole(place, "train_batch_size");
  state.logging_steps = whole(place, "logging_steps", state.logging_steps);
  state.eval_steps = whole(place, "eval_steps", state.eval_steps);
  state.save_steps = whole(place, "save_steps", state.save_steps);
  if (place.has("log_history")) state.log_history = place["log_history"].array();
  state.best_metric = number(place, "best_metric");
  state.best_global_step = whole(place, "best_global_step");
  if (place.has("best_model_checkpoint")) state.best_model_checkpoint = place["best_model_checkpoint"].string();
  state.is_local_process_zero = place.boolean_or("is_local_process_zero", true);
  state.is_world_process_zero = place.boolean_or("is_world_process_zero", true);
  if (place.has("stateful_callbacks")) state.stateful_callbacks = place["stateful_callbacks"].object();
  return state;
}

TrainerState load_state(const std::filesystem::path& file) { return parse_state(read_file(file), file.string()); }

}  // namespace trireme::trainer
