#include "trireme/trainer/train/training.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/tensor.h>
#include <torch/csrc/autograd/autograd.h>

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <fstream>

#include "trireme/base/env.h"
#include "trireme/base/error.h"
#include "trireme/torch_ext/ops/ops.h"
#include "trireme/torch_ext/ops/optimizers.h"
#include "trireme/trainer/plan/dropout_seed.h"
#include "trireme/trainer/train/seconds.h"

namespace trireme::trainer {
namespace {

// Dropout's masks come from torch's generator: put it where this micro-batch of this rank has it, in every run.
void seed_generator(int64_t seed, int64_t step, int64_t micro_batch, int rank) {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::scoped_lock lock(generator.mutex());
  generator.set_current_seed(dropout_seed(seed, step, micro_batch, rank));
}

int64_t samples_a_step(const QaOptions& options, const World& world) {
  return options.per_device_train_batch_size * options.gradient_accumulation_steps * world.size();
}

int64_t bucket_bytes(const QaOptions& options) {
  return options.ddp_bucket_cap_mb ? *options.ddp_bucket_cap_mb << 20 : Gradients::kBucketBytes;
}

// This rank's, or nothing.
std::string ledger_of(const World& world) {
  const std::string name = env::text("TRIREME_LEDGER");
  return name.empty() ? "" : trireme::str(name, ".", world.rank());
}

// Microseconds since 1970 on rank 0: later runs have larger ones.
int64_t number_of_run(const World& world) {
  const auto since = std::chrono::system_clock::now().time_since_epoch();
  const at::Tensor number = at::tensor({std::chrono::duration_cast<std::chrono::microseconds>(since).count()}, at::kLong);
  world.broadcast(number);
  return number.item<int64_t>();
}

int64_t steps_an_epoch(const QaOptions& options, int64_t samples, int64_t a_step) {
  const int64_t whole = samples / a_step;
  if (options.dataloader_drop_last && whole > 0) return whole;
  return (samples + a_step - 1) / a_step;
}

}  // namespace

Training::Training(const QaOptions& options, const World& world, QaModel& model, AdamW& optimizer,
                   const std::vector<Feature>& features, const PairTemplate& pair)
    : options_(options),
      world_(world),
      model_(model),
      optimizer_(optimizer),
      features_(features),
      pair_(pair),
      data_fingerprint_(fingerprint(features)),
      costs_(costs_of(features, model.config())),
      gradients_(model.parameters(), world, options.gradient_accumulation_steps, bucket_bytes(options)),
      sampler_(static_cast<int64_t>(features.size()), static_cast<uint64_t>(options.sampling_seed())),
      ledger_(ledger_of(world)) {
  if (features.empty()) throw InvalidArgument("there is nothing to train on: no features were made of the training data");
  if (!ledger_.empty()) run_ = number_of_run(world);
  standing_.samples_a_step = samples_a_step(options, world);
  steps_of_epoch_ = steps_an_epoch(options, sampler_.samples(), standing_.samples_a_step);
  total_steps_ = options.max_steps > 0
                     ? options.max_steps
                     : static_cast<int64_t>(std::ceil(options.num_train_epochs * static_cast<double>(steps_of_epoch_)));
  schedule_ = {schedule_kind(options.lr_scheduler_type), options.learning_rate, warmup_steps_of(options, total_steps_),
               total_steps_};
}

void Training::resume(const Standing& standing) {
  const int64_t a_step = standing_.samples_a_step;
  standing_ = standing;
  standing_.samples_a_step = a_step;
  if (standing.samples_a_step != a_step && options_.max_steps <= 0) standing_.schedule_step = total_steps_ - steps_to_end();
}

// From where it stands to the end of the last epoch, of which there may be a part.
int64_t Training::steps_to_end() const {
  const auto whole_epochs = static_cast<int64_t>(options_.num_train_epochs);
  const int64_t of_last_part = total_steps_ - whole_epochs * steps_of_epoch_;
  const int64_t rest = sampler_.samples() - standing_.samples_done;
  if (standing_.epoch >= whole_epochs)
    return std::max<int64_t>(0, of_last_part - standing_.samples_done / standing_.samples_a_step);
  return steps_an_epoch(options_, rest, standing_.samples_a_step) + (whole_epochs - standing_.epoch - 1) * steps_of_epoch_ +
         of_last_part;
}

double Training::epochs_done() const {
  return static_cast<double>(standing_.epoch) +
         static_cast<double>(standing_.samples_done) / static_cast<double>(sampler_.samples());
}

void Training::step(bool stop) {
  const double start = now();
  const double waited = gradients_.wait_seconds();
  const auto samples = sampler_.take(standing_.epoch, standing_.samples_done, standing_.samples_a_step);
  // Micro-batch m of rank r is bin m * ranks + r.
  const auto bins = deal(samples, costs_, static_cast<size_t>(world_.size() * options_.gradient_accumulation_steps),
                         static_cast<size_t>(options_.per_device_train_batch_size));
  StepSums sums = take_part(bins, static_cast<int64_t>(samples.size()));
  // Before the ranks agree: what a rank has saved, every rank has written down.
  write_ledger(bins);
  sums.stop = stop;
  sums = over_all_ranks(sums);

  const double norm = torch_ext::global_norm(gradients_.values());
  const double scale = options_.max_grad_norm > 0 ? torch_ext::clip_coefficient(norm, options_.max_grad_norm) : 1.0;
  const std::scoped_lock lock(state_mutex_);
  learning_rate_ = learning_rate();
  optimizer_.step(gradients_.values(), learning_rate_, scale);
  ++standing_.global_step;
  ++standing_.schedule_step;
  standing_.samples_done += static_cast<int64_t>(samples.size());
  const int64_t rest = sampler_.samples() - standing_.samples_done;
  if (rest == 0 || (options_.dataloader_drop_last && rest < standing_.samples_a_step)) {
    ++standing_.epoch;
    standing_.samples_done = 0;
  }
  ++standing_.steps_since_report;
  standing_.loss_sum += sums.loss;
  standing_.loss_since_report += sums.loss;
  standing_.tokens_seen += sums.tokens;
  stop_agreed_ = sums.stop;
  grad_norm_ = norm;
  tally_.tokens += sums.tokens;
  tally_.samples += static_cast<int64_t>(samples.size());
  tally_.wait_seconds += gradients_.wait_seconds() - waited;
  const double seconds = now() - start;
  tally_.seconds += seconds;
  seconds_ += seconds;
}

Training::StepSums Training::take_part(const std::vector<std::vector<int32_t>>& bins, int64_t samples) {
  const int64_t micro_batches = options_.gradient_accumulation_steps;
  StepSums mine_alone;
  for (int64_t m = 0; m < micro_batches; ++m) {
    gradients_.begin(m == 0, m == micro_batches - 1);
    const auto& mine = bins[static_cast<size_t>(m * world_.size() + world_.rank())];
    if (mine.empty()) continue;
    seed_generator(options_.seed, standing_.global_step, m, world_.rank());
    const Batch batch = make_batch(features_, mine, model_.config(), pair_);
    const at::Tensor logits = model_.forward(batch.packed, true);
    const at::Tensor mean = ops::span_loss(logits, batch.packed.cu_seqlens, batch.starts, batch.ends);
    // Every sample of the step counts the same, wherever it is computed.
    const at::Tensor loss = mean * (static_cast<double>(batch.sequences) / static_cast<double>(samples));
    torch::autograd::backward({loss}, {});
    mine_alone.loss += loss.item<double>();
    mine_alone.tokens += batch.tokens;
  }
  gradients_.finish();
  return mine_alone;
}

Training::StepSums Training::over_all_ranks(const StepSums& mine) const {
  const at::Tensor sums = at::tensor({mine.stop ? 1.0 : 0.0, mine.loss, static_cast<double>(mine.tokens)}, at::kDouble);
  world_.sum(sums);
  return {sums[0].item<double>() > 0, sums[1].item<double>(), static_cast<int64_t>(sums[2].item<double>())};
}

StepsReport Training::since_report() const {
  StepsReport report;
  report.steps = standing_.steps_since_report;
  report.loss = report.steps > 0 ? standing_.loss_since_report / static_cast<double>(report.steps) : 0;
  report.grad_norm = grad_norm_;
  report.learning_rate = learning_rate_;
  if (tally_.seconds > 0) {
    report.samples_a_second = static_cast<double>(tally_.samples) / tally_.seconds;
    report.tokens_a_second = static_cast<double>(tally_.tokens) / tally_.seconds;
    report.communication_share = tally_.wait_seconds / tally_.seconds;
  }
  return report;
}

StepsReport Training::report() {
  const StepsReport report = since_report();
  standing_.steps_since_report = 0;
  standing_.loss_since_report = 0;
  tally_ = {};
  return report;
}

int64_t Training::dense_parameters() const {
  int64_t count = 0;
  for (const Parameter& each : model_.parameters())
    if (each.name.find("_embeddings.") == std::string::npos) count += each.value.numel();
  return count;
}

RankTimes Training::times() const { return {seconds_ - gradients_.wait_seconds(), gradients_.wait_seconds()}; }

void Training::write_ledger(const std::vector<std::vector<int32_t>>& bins) const {
  if (ledger_.empty()) return;
  std::ofstream ledger(ledger_, std::ios::app);
  for (size_t bin = static_cast<size_t>(world_.rank()); bin < bins.size(); bin += static_cast<size_t>(world_.size()))
    for (int32_t sample : bins[bin])
      ledger << standing_.global_step << ' ' << standing_.epoch << ' ' << sample << ' ' << run_ << '\n';
  if (!ledger.flush()) throw IoError("cannot write the ledger " + ledger_);
}

}  // namespace trireme::trainer
