// `trireme qa`: run_qa.py's story. Model and data, training, evaluation, prediction, and what is left in output_dir.
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>

#include <chrono>
#include <cmath>
#include <csignal>
#include <iostream>

#include "trireme/base/error.h"
#include "trireme/base/log.h"
#include "trireme/torch_ext/ops/block_cache.h"
#include "trireme/trainer/app/commands.h"
#include "trireme/trainer/app/journal.h"
#include "trireme/trainer/app/qa_data.h"
#include "trireme/trainer/model/weights.h"
#include "trireme/trainer/report/results.h"
#include "trireme/trainer/report/trainer_state.h"
#include "trireme/trainer/squad/metrics.h"
#include "trireme/trainer/squad/prediction_files.h"
#include "trireme/trainer/train/bf16_plan.h"
#include "trireme/trainer/train/checkpoint.h"
#include "trireme/trainer/train/evaluate.h"
#include "trireme/trainer/train/seconds.h"

namespace trireme::trainer {
namespace {

namespace fs = std::filesystem;

constexpr int kExitTerminated = 128 + SIGTERM;

// SIGTERM, as a pod's eviction brings it: the step under way is finished and saved.
std::atomic<bool> termination_wanted{false};
static_assert(std::atomic<bool>::is_always_lock_free);

SideFiles side_files(const Tokenizer& tokenizer) {
  SideFiles files;
  for (const fs::path& path : tokenizer.files()) files.contents.emplace_back(path.filename().string(), read_file(path));
  return files;
}

// Owns everything a run has. Made and driven in the same way on every rank.
class QaRun {
 public:
  QaRun(const QaCommand& command, World world, const Bf16Plan& bf16);

  // The exit code.
  int run();

 private:
  QaData data(Split split) const;
  void load_model(bool resumes);
  bool train(const std::optional<fs::path>& checkpoint);  // false: it was told to terminate, and has saved
  bool train_steps(Training& training, Journal& journal);
  // Where the steps of this process began.
  struct Start {
    double time;
    int64_t step;
    double epochs_done;
  };
  void finish_training(Training& training, Journal& journal, const Start& start);
  void tell_stragglers(const RankTimes& mine) const;
  // Collective: throws on every rank where a number differs.
  void require_agreement(const char* what, int64_t number) const;
  // The metrics, on the first rank.
  Json evaluate(Split split, const QaData& data, std::optional<double> epoch);
  void evaluate_and_save(Split split, const QaData& data);
  void save(Training& training, Journal& journal);
  bool told_to_terminate() const;
  std::optional<fs::path> checkpoint_to_resume() const;
  void say(const std::string& line) const {
    if (world_.is_first() && !quiet_) std::cerr << line << std::endl;
  }

  const QaOptions options_;
  const World world_;
  const HubSettings hub_;
  const fs::path output_dir_;
  ModelConfig config_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::unique_ptr<QaModel> model_;
  std::unique_ptr<AdamW> optimizer_;
  const bool native_bf16_;
  const bool quiet_;  // --log_level
  std::optional<QaData> validation_, test_;
  std::optional<double> epochs_done_;
};

QaRun::QaRun(const QaCommand& command, World world, const Bf16Plan& bf16)
    : options_(command.options),
      world_(std::move(world)),
      hub_(HubSettings::from_environment(options_.cache_dir.value_or(""), options_.token.value_or(""))),
      output_dir_(command.options.output_dir),
      native_bf16_(bf16.native),
      quiet_(options_.log_level == "warning" || options_.log_level == "error" || options_.log_level == "critical") {
  say(world_.describe());
  for (const std::string& note : command.given.notes) say(note);
  if (options_.bf16 || options_.bf16_full_eval) say(bf16.sentence);
}

QaData QaRun::data(Split split) const {
  const double start = now();
  const auto threads = static_cast<int>(options_.preprocessing_num_workers.value_or(at::get_num_threads()));
  QaData data = load_data(options_, split, *tokenizer_, config_.longest(), hub_, threads);
  say(str(data.file.string(), ": ", data.examples.size(), " questions, ", data.features.size(), " features, in ",
          std::round((now() - start) * 10) / 10, " s"));
  return data;
}

std::optional<fs::path> QaRun::checkpoint_to_resume() const {
  if (options_.resume_from_checkpoint && !options_.resumes_from_last()) {
    const fs::path named = *options_.resume_from_checkpoint;
    if (!fs::exists(named / "trainer_state.json"))
      throw InvalidArgument(
          str("--resume_from_checkpoint ", named.string(), ": it is no checkpoint (it has no trainer_state.json)"));
    return named;
  }
  if (options_.overwrite_output_dir && !options_.resume_from_checkpoint) return std::nullopt;
  const auto last = last_checkpoint(output_dir_);
  if (!last && options_.resumes_from_last())
    throw InvalidArgument(str("--resume_from_checkpoint True: there is no checkpoint in ", output_dir_.string()));
  return last;
}

int QaRun::run() {
  // One rank looks after the folder, before hours are spent on what could not be kept; the others look at it afterwards.
  if (world_.is_first()) {
    check_writable(output_dir_);
    remove_remains(output_dir_);
  }
  world_.barrier();
  const std::optional<fs::path> checkpoint = options_.do_train ? checkpoint_to_resume() : std::nullopt;
  if (const auto why = options_.do_train ? why_not_output_dir(options_, checkpoint.has_value()) : std::nullopt)
    throw InvalidArgument(*why);
  world_.barrier();  // all have looked before anything is written

  load_model(checkpoint.has_value());
  // What is wrong with data is said before any training.
  if (options_.do_eval) validation_ = data(Split::validation);
  if (options_.do_predict) test_ = data(Split::test);
  if (options_.do_train && !train(checkpoint)) return kExitTerminated;
  if (validation_) evaluate_and_save(Split::validation, *validation_);
  if (test_) evaluate_and_save(Split::test, *test_);
  world_.barrier();
  return 0;
}

void QaRun::load_model(bool resumes) {
  const fs::path model_dir = model_directory(options_.model_name_or_path, hub_, options_.model_revision);
  const auto other = [&](const std::optional<std::string>& name) {
    return name ? tokenizer_directory(*name, hub_, options_.model_revision) : model_dir;
  };
  config_ = read_config(other(options_.config_name) / "config.json");
  tokenizer_ = load_tokenizer(other(options_.tokenizer_name));
  if (tokenizer_->vocabulary_size() > config_.vocabulary)
    throw InvalidArgument(str("the tokenizer has ", tokenizer_->vocabulary_size(), " tokens, the model of ",
                              model_dir.string(), " knows ", config_.vocabulary, ": they do not belong together"));
  model_ = std::make_unique<QaModel>(config_);
  model_->checkpoint_gradients(options_.gradient_checkpointing);
  if (resumes) return;  // the weights are the checkpoint's
  const LoadedWeights loaded = load_weights(*model_, model_dir, static_cast<uint64_t>(options_.seed));
  if (!loaded.new_ones.empty())
    say("the head for question answering is new: this model needs to be trained before it answers well");
}

bool QaRun::train(const std::optional<fs::path>& checkpoint) {
  const QaData train_data = data(Split::train);
  optimizer_ = std::make_unique<AdamW>(model_->parameters(), AdamWOptions{options_.adam_beta1, options_.adam_beta2,
                                                                          options_.adam_epsilon, options_.weight_decay});
  std::optional<Standing> standing;
  std::optional<TrainerState> state;
  if (checkpoint) {
    standing = load_checkpoint(*checkpoint, *model_, *optimizer_, static_cast<int64_t>(train_data.features.size()),
                               options_.sampling_seed());
    state = load_state(*checkpoint / "trainer_state.json");
    say(str("goes on from ", checkpoint->string(), ", step ", standing->global_step));
  }
  require_agreement("the step to go on from (is the output directory the same on every host?)",
                    standing ? standing->global_step : 0);
  require_agreement("the training data", static_cast<int64_t>(fingerprint(train_data.features) >> 1));
  if (options_.bf16 && native_bf16_) optimizer_->split_parameters();
  Training training(options_, world_, *model_, *optimizer_, train_data.features, tokenizer_->pair_template());
  if (standing) training.resume(*standing);
  Journal journal(options_, world_, training, std::move(state));

  const Start start{now(), training.standing().global_step, training.epochs_done()};
  if (!train_steps(training, journal)) return false;
  finish_training(training, journal, start);
  return true;
}

bool QaRun::train_steps(Training& training, Journal& journal) {
  while (!training.finished()) {
    training.step();
    journal.after_step(training);
    const int64_t step = training.standing().global_step;
    const auto due = [&](const std::string& strategy, int64_t every) {
      return (strategy == "steps" && step % every == 0) || (strategy == "epoch" && training.at_end_of_epoch());
    };
    const TrainerState& state = journal.state();
    if (due(options_.logging_strategy, state.logging_steps) || (step == 1 && options_.logging_first_step))
      journal.report(training, training.report());
    if (due(options_.eval_strategy, state.eval_steps))
      journal.log(evaluate(Split::validation, *validation_, training.epochs_done()));
    const bool terminate = told_to_terminate();
    if (terminate || due(options_.save_strategy, state.save_steps)) save(training, journal);
    if (!terminate) continue;
    journal.finish();
    say(str("SIGTERM: step ", step, " is saved; give the same command to go on"));
    return false;
  }
  training.fold();
  journal.after_step(training);
  journal.finish();
  return true;
}

void QaRun::finish_training(Training& training, Journal& journal, const Start& start) {
  const Standing& end = training.standing();
  const auto steps = static_cast<double>(std::max<int64_t>(1, end.global_step));
  // Of this run alone: steps that came with a checkpoint took no time here.
  const int64_t samples_of_this_run =
      std::llround(static_cast<double>(training.samples()) * (training.epochs_done() - start.epochs_done));
  Json metrics = speed_metrics("train", now() - start.time, samples_of_this_run, end.global_step - start.step);
  metrics["total_flos"] = journal.state().total_flos;
  metrics["train_loss"] = end.loss_sum / steps;
  epochs_done_ = training.epochs_done();
  metrics["epoch"] = *epochs_done_;
  journal.log(metrics);
  metrics["train_samples"] = training.samples();
  tell_stragglers(training.times());
  if (!world_.is_first()) return;
  save_model(output_dir_, *model_, *optimizer_, side_files(*tokenizer_));
  save_metrics(output_dir_, "train", metrics);
  save_state(journal.state(), output_dir_ / "trainer_state.json");
  std::cout << metrics_table("train", metrics) << std::flush;
}

void QaRun::require_agreement(const char* what, int64_t number) const {
  const at::Tensor all = world_.gather(at::tensor({number}, at::kLong));
  for (int rank = 1; rank < world_.size(); ++rank)
    if (all[rank][0].item<int64_t>() != all[0][0].item<int64_t>())
      throw InvalidArgument(str("ranks 0 and ", rank, " do not agree on ", what));
}

void QaRun::tell_stragglers(const RankTimes& mine) const {
  const at::Tensor all = world_.gather(at::tensor({mine.compute_seconds, mine.wait_seconds}, at::kDouble));
  std::vector<RankTimes> ranks;
  for (int rank = 0; rank < world_.size(); ++rank)
    ranks.push_back({all[rank][0].item<double>(), all[rank][1].item<double>()});
  if (const std::string sentence = straggler_sentence(ranks); !sentence.empty()) say(sentence);
}

bool QaRun::told_to_terminate() const {
  // All ranks must agree on the step.
  const at::Tensor wanted = at::empty({1}, at::kFloat).fill_(termination_wanted ? 1 : 0);
  world_.sum(wanted);
  return wanted.item<float>() > 0;
}

void QaRun::save(Training& training, Journal& journal) {
  training.fold();
  journal.after_step(training);
  if (world_.is_first())
    save_checkpoint(output_dir_, *model_, *optimizer_, side_files(*tokenizer_), training, to_text(journal.state()),
                    options_.save_total_limit, options_.save_only_model);
  world_.barrier();  // a rank that ends early must not do so while the checkpoint is written
}

Json QaRun::evaluate(Split split, const QaData& data, std::optional<double> epoch) {
  const double start = now();
  const Logits logits = compute_logits(options_.bf16_full_eval && native_bf16_ ? model_->in_bf16() : *model_, data.features,
                                       tokenizer_->pair_template(), options_.per_device_eval_batch_size, world_);
  const std::string prefix = split == Split::test ? "predict" : "eval";
  Json metrics = Json::object();
  if (world_.is_first()) {
    const std::vector<Prediction> predictions =
        postprocess(data.examples, data.features, logits.of_features(),
                    {.version_2_with_negative = options_.version_2_with_negative,
                     .n_best_size = options_.n_best_size,
                     .max_answer_length = options_.max_answer_length,
                     .null_score_diff_threshold = options_.null_score_diff_threshold});
    write_predictions(output_dir_, prefix, predictions, options_.version_2_with_negative);
    if (split != Split::test) {
      const Json scores = options_.version_2_with_negative ? squad_v2_metrics(data.examples, predictions)
                                                           : squad_v1_metrics(data.examples, predictions);
      for (const auto& [name, value] : scores.items()) metrics[prefix + "_" + name] = value;
    }
    const int64_t features = static_cast<int64_t>(data.features.size());
    metrics.update(speed_metrics(prefix, now() - start, features));
    metrics[prefix + "_samples"] = features;
    if (epoch) metrics["epoch"] = *epoch;
  }
  world_.barrier();
  return metrics;
}

void QaRun::evaluate_and_save(Split split, const QaData& data) {
  const Json metrics = evaluate(split, data, epochs_done_);
  if (!world_.is_first()) return;
  const char* name = split == Split::test ? "predict" : "eval";
  save_metrics(output_dir_, name, metrics);
  std::cout << metrics_table(name, metrics) << std::flush;
}

}  // namespace

int run_qa(const std::vector<std::string>& arguments) {
  const QaCommand command = parse_qa(arguments);
  if (command.given.help) {
    std::cout << qa_help();
    return 0;
  }
  // Forks: before torch's threads.
  const Bf16Plan bf16 = command.options.bf16 || command.options.bf16_full_eval ? bf16_plan() : Bf16Plan{};
  torch_ext::install_block_cache();
  std::signal(SIGTERM, [](int) { termination_wanted = true; });
  return QaRun(command, World::join(std::chrono::seconds(command.options.ddp_timeout)), bf16).run();
}

}  // namespace trireme::trainer
