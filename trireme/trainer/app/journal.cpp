#include "trireme/trainer/app/journal.h"

#include <cmath>

namespace trireme::trainer {
namespace {

ProgressOptions progress_options(const QaOptions& options, const World& world, const Training& training) {
  ProgressOptions shown;
  shown.first_step = training.standing().global_step;
  shown.total_steps = shown.first_step + training.steps_left();
  shown.rank = world.rank();
  shown.plain = options.disable_tqdm.value_or(false);
  return shown;
}

ProgressUpdate update_of(const Training& training, const StepsReport& report) {
  return {.step = training.standing().global_step,
          .epoch = training.epochs_done(),
          .loss = report.loss,
          .learning_rate = report.learning_rate,
          .samples_per_second = report.samples_a_second,
          .tokens_per_second = report.tokens_a_second,
          .communication_share = report.communication_share};
}

double rounded(double value) { return std::round(value * 1e4) / 1e4; }

}  // namespace

Journal::Journal(const QaOptions& options, const World& world, const Training& training, std::optional<TrainerState> earlier)
    : flops_a_token_(6.0 * static_cast<double>(training.dense_parameters())),  // as HF's Trainer counts them
      state_(earlier.value_or(TrainerState{})),
      progress_(progress_options(options, world, training)) {
  // HF's Trainer need not have counted the tokens of its own steps.
  if (earlier)
    flops_elsewhere_ = earlier->total_flos - flops_a_token_ * static_cast<double>(training.standing().tokens_seen);
  state_.max_steps = training.standing().global_step + training.steps_left();
  const double epochs = options.max_steps > 0
                            ? static_cast<double>(options.max_steps) / static_cast<double>(training.steps_of_epoch())
                            : options.num_train_epochs;
  state_.num_train_epochs = static_cast<int64_t>(std::ceil(epochs));
  state_.train_batch_size = options.per_device_train_batch_size;
  state_.logging_steps = steps_of(options.logging_steps, state_.max_steps);
  state_.save_steps = steps_of(options.save_steps, state_.max_steps);
  state_.eval_steps = steps_of(options.eval_steps.value_or(options.logging_steps), state_.max_steps);
  note(training);
  if (world.is_first() && options.writes_tensorboard())
    events_.emplace(options.logging_dir ? std::filesystem::path(*options.logging_dir)
                                        : default_logging_dir(options.output_dir));
}

void Journal::note(const Training& training) {
  const Standing& standing = training.standing();
  state_.epoch = training.epochs_done();
  state_.global_step = standing.global_step;
  state_.num_input_tokens_seen = standing.tokens_seen;
  state_.total_flos = flops_elsewhere_ + flops_a_token_ * static_cast<double>(standing.tokens_seen);
}

void Journal::after_step(const Training& training) {
  note(training);
  // The mean since the last log line; right after one there is nothing new to show.
  if (const StepsReport report = training.since_report(); report.steps > 0) progress_.step(update_of(training, report));
}

void Journal::report(const Training& training, const StepsReport& report) {
  note(training);
  progress_.log(update_of(training, report));
  Json entry;
  entry["loss"] = rounded(report.loss);
  entry["grad_norm"] = report.grad_norm;
  entry["learning_rate"] = report.learning_rate;
  log(entry);
}

void Journal::log(const Json& metrics) {
  state_.log(metrics);
  if (!events_) return;
  std::vector<std::pair<std::string, double>> values;
  for (const auto& [name, value] : metrics.items())
    if (value.is_number()) values.emplace_back(tensorboard_tag(name), value.get<double>());
  events_->scalars(values, state_.global_step);
}

}  // namespace trireme::trainer
