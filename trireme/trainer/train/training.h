// The training loop.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <vector>

#include "trireme/trainer/options/qa_options.h"
#include "trireme/trainer/plan/sampler.h"
#include "trireme/trainer/plan/schedule.h"
#include "trireme/trainer/report/progress.h"
#include "trireme/trainer/train/adamw.h"
#include "trireme/trainer/train/batch.h"
#include "trireme/trainer/train/gradients.h"

namespace trireme::trainer {

// Where a run stands: all that a checkpoint needs beside weights and moments. Nothing random is carried from step to step:
// what a step draws depends on the seed, its number and the rank.
struct Standing {
  int64_t global_step = 0;
  int64_t epoch = 0;           // the one under way
  int64_t samples_done = 0;    // of it
  int64_t schedule_step = 0;   // differs from global_step after a change of the number of samples a step takes
  int64_t samples_a_step = 0;  // with which it came here
  // Over all ranks:
  double loss_sum = 0;  // over all steps
  double loss_since_report = 0;
  int64_t steps_since_report = 0;
  int64_t tokens_seen = 0;
};

// Since the last report, over all ranks.
struct StepsReport {
  int64_t steps = 0;
  double loss = 0;           // mean over the steps
  double grad_norm = 0;      // of the last one, before clipping
  double learning_rate = 0;  // of the last one
  double samples_a_second = 0, tokens_a_second = 0;
  double communication_share = 0;  // of the time, on this rank
};

// Owns the gradients' buckets; the rest is its caller's. Collective: every rank makes the same one and the same calls.
class Training {
 public:
  Training(const QaOptions& options, const World& world, QaModel& model, AdamW& optimizer,
           const std::vector<Feature>& features, const PairTemplate& pair);

  // Goes on from a checkpoint. With another number of samples a step, the schedule goes on where as many of its steps are
  // left as the samples that are left make.
  void resume(const Standing& standing);

  bool finished() const { return standing_.schedule_step >= total_steps_; }
  // `stop` is this rank's wish to end after it; whether any rank had one is stop_agreed(), the same on all.
  void step(bool stop = false);
  bool stop_agreed() const { return stop_agreed_; }
  // What happened since the last report(), which begins a new count. With state_mutex() held, where another thread may save.
  StepsReport since_report() const;
  StepsReport report();
  // Held while a step changes weights, moments and standing, which it does after its last word with the other ranks: whoever
  // holds it, on whichever thread, finds the last completed step, and needs nobody to save it.
  std::mutex& state_mutex() { return state_mutex_; }

  const Standing& standing() const { return standing_; }
  int64_t steps_left() const { return total_steps_ - standing_.schedule_step; }
  int64_t steps_of_epoch() const { return steps_of_epoch_; }
  // The last step ended an epoch, or the run in the midst of one.
  bool at_end_of_epoch() const { return finished() || (standing_.samples_done == 0 && standing_.global_step > 0); }
  double epochs_done() const;
  // Of the next step.
  double learning_rate() const { return schedule_.at(standing_.schedule_step); }
  double base_learning_rate() const { return schedule_.learning_rate; }
  int64_t samples() const { return sampler_.samples(); }  // of an epoch
  uint64_t data_fingerprint() const { return data_fingerprint_; }
  int64_t seed() const { return options_.sampling_seed(); }
  // The elements of parameters that take part in products: all but the embeddings'.
  int64_t dense_parameters() const;
  // Of this rank.
  RankTimes times() const;

 private:
  // What the ranks have to tell each other beside gradients.
  struct StepSums {
    bool stop = false;
    double loss = 0;
    int64_t tokens = 0;
  };
  StepSums take_part(const std::vector<std::vector<int32_t>>& bins, int64_t samples);
  StepSums over_all_ranks(const StepSums& mine) const;
  int64_t steps_to_end() const;
  void write_ledger(const std::vector<std::vector<int32_t>>& bins) const;

  const QaOptions& options_;
  const World& world_;
  QaModel& model_;
  AdamW& optimizer_;
  const std::vector<Feature>& features_;
  const PairTemplate& pair_;
  const uint64_t data_fingerprint_;
  const std::vector<float> costs_;
  Gradients gradients_;
  Sampler sampler_;
  const std::string ledger_;  // empty: none is kept
  int64_t run_ = 0;           // in the ledger
  Schedule schedule_;
  int64_t steps_of_epoch_ = 0, total_steps_ = 0;
  Standing standing_;
  std::mutex state_mutex_;
  bool stop_agreed_ = false;

  // Since the last report().
  struct Tally {
    int64_t samples = 0, tokens = 0;
    double seconds = 0, wait_seconds = 0;
  };
  Tally tally_;
  double grad_norm_ = 0, learning_rate_ = 0;  // of the last step
  double seconds_ = 0;                        // of all steps
};

}  // namespace trireme::trainer
