// What a training run tells while it goes on: the line on the terminal, trainer_state.json, TensorBoard's events.
#pragma once

#include <optional>

#include "trireme/trainer/options/qa_options.h"
#include "trireme/trainer/report/events.h"
#include "trireme/trainer/report/progress.h"
#include "trireme/trainer/report/trainer_state.h"
#include "trireme/trainer/train/training.h"

namespace trireme::trainer {

// Every rank has one and keeps the same state; only the first writes anything.
class Journal {
 public:
  // `earlier` is the state that came with a checkpoint.
  Journal(const QaOptions& options, const World& world, const Training& training, std::optional<TrainerState> earlier);

  void after_step(const Training& training);
  // The logging steps' line and entry.
  void report(const Training& training, const StepsReport& report);
  // An entry of the log: what an evaluation found, or the whole run.
  void log(const Json& metrics);
  void finish() { progress_.finish(); }

  const TrainerState& state() const { return state_; }

 private:
  void note(const Training& training);

  double flops_a_token_, flops_elsewhere_ = 0;
  TrainerState state_;
  Progress progress_;
  std::optional<EventWriter> events_;
};

}  // namespace trireme::trainer
