// `trireme qa`: run_qa.py's story. Model and data, training, evaluation, prediction, and what is left in output_dir.
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>

#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <iostream>
#include <thread>

#include "trireme/base/deadline.h"
#include "trireme/base/error.h"
#include "trireme/base/fnv.h"
#include "trireme/base/log.h"
#include "trireme/torch_ext/ops/block_cache.h"
#include "trireme/trainer/app/commands.h"
#include "trireme/trainer/app/download_lines.h"
#include "trireme/trainer/app/journal.h"
#include "trireme/trainer/app/qa_data.h"
#include "trireme/trainer/app/termination.h"
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

// After SIGTERM all ranks finish the step and save it together. Where they do not get there (a step that takes longer, a
// peer that is gone), the first rank saves the last completed step alone; the others leave it the time to.
constexpr std::chrono::seconds kPatienceOfFirst{8}, kPatienceOfOthers{16};

// Rank 0 has chosen a checkpoint: how long the others look for it. A network file system may show it late.
constexpr std::chrono::seconds kCheckpointPatience{30};

// Thrown where SIGTERM has come and the step that was completed last is all that counts.
struct Terminated {};

// How often torchrun would start this job again; each start has the same arguments.
int64_t restarts() {
  const char* text = std::getenv("TORCHELASTIC_MAX_RESTARTS");
  return text == nullptr ? 0 : std::strtoll(text, nullptr, 10);
}

SideFiles read_files_of(const Tokenizer& tokenizer) {
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
  void run_to_the_end();
  QaData data(Split split) const;
  void load_model(bool resumes);
  void train(const std::optional<fs::path>& checkpoint);
  void train_steps(Training& training, Journal& journal);
  // Where the steps of this process began.
  struct Start {
    double time;
    int64_t step;
    double epochs_done;
  };
  void finish_training(Training& training, Journal& journal, const Start& start);
  void tell_stragglers(const RankTimes& mine) const;
  // Collective: throws on every rank where a number differs.
  void require_agreement(const char* what, uint64_t number) const;
  void require_same_flags() const;
  // Collective: ranks whose gradients have different types could not add them.
  bool all_compute_in_bf16() const;
  Logits logits_of(const QaData& data);
  // The metrics, on the first rank.
  Json evaluate(Split split, const QaData& data, std::optional<double> epoch);
  void evaluate_and_save(Split split, const QaData& data);
  // Collective.
  void save();
  // The first rank alone: the last completed step, unless it has been saved. Whoever calls holds the training's
  // state_mutex().
  void save_last_step();
  void save_after_termination();
  // Where the ranks have not come to save together in time. False: not now.
  bool end_alone();
  std::string how_to_go_on() const;
  // Throws where this run should not go on: SIGTERM, or a lost peer.
  void check() const;
  // Collective: what the first rank finds in output_dir counts for all.
  std::optional<fs::path> agreed_checkpoint();
  std::optional<fs::path> checkpoint_to_resume() const;
  // By --resume_from_checkpoint, without the slash that a shell's completion leaves at its end.
  std::optional<fs::path> named_checkpoint() const;
  void say(const std::string& line) const {
    if (world_.is_first() && !quiet_) std::cerr << line << std::endl;
  }

  const QaOptions options_;
  const World world_;
  HubSettings hub_;
  const fs::path output_dir_;
  ModelConfig config_;
  std::unique_ptr<Tokenizer> tokenizer_;
  // Kept from the beginning: their folder may be a checkpoint that this run removes.
  SideFiles tokenizer_files_;
  std::unique_ptr<QaModel> model_;
  std::unique_ptr<AdamW> optimizer_;
  const Bf16Plan bf16_;  // of this rank
  bool native_bf16_ = false;
  const bool quiet_;  // --log_level
  std::optional<QaData> train_data_, validation_, test_;
  std::optional<double> epochs_done_;
  // From the first step to the end of the run: until then SIGTERM may ask for the last step to be saved.
  std::unique_ptr<Training> training_;
  std::unique_ptr<Journal> journal_;
  int64_t saved_step_ = 0;  // on the first rank
  std::unique_ptr<Termination> termination_;
};

QaRun::QaRun(const QaCommand& command, World world, const Bf16Plan& bf16)
    : options_(command.options),
      world_(std::move(world)),
      hub_(HubSettings::from_environment(options_.cache_dir.value_or(""), options_.token.value_or(""))),
      output_dir_(command.options.output_dir),
      bf16_(bf16),
      quiet_(options_.log_level == "warning" || options_.log_level == "error" || options_.log_level == "critical") {
  // One process of a host downloads a file, whichever comes first. Those of the first host, whose ranks are local ones,
  // tell.
  if (world_.rank() == world_.local_rank() && !quiet_) hub_.progress = download_lines();
  say(world_.describe());
  for (const std::string& note : command.given.notes) say(note);
}

QaData QaRun::data(Split split) const {
  const double start = now();
  const auto threads = static_cast<int>(options_.preprocessing_num_workers.value_or(at::get_num_threads()));
  QaData data = load_data(options_, split, *tokenizer_, config_.longest(), hub_, threads);
  say(str(data.file.string(), ": ", data.examples.size(), " questions, ", data.features.size(), " features, in ",
          std::round((now() - start) * 10) / 10, " s"));
  // Whose features are dealt out to the ranks, to train on or to evaluate.
  require_agreement(split == Split::train ? "the training data" : "the questions to evaluate", fingerprint(data.features));
  return data;
}

std::optional<fs::path> QaRun::named_checkpoint() const {
  if (!options_.resume_from_checkpoint || options_.resumes_from_last()) return std::nullopt;
  const fs::path named = *options_.resume_from_checkpoint;
  return named.has_filename() ? named : named.parent_path();
}

std::optional<fs::path> QaRun::checkpoint_to_resume() const {
  const auto last = last_checkpoint(output_dir_);
  if (const auto named = named_checkpoint()) {
    if (!fs::exists(*named / "trainer_state.json"))
      throw InvalidArgument(
          str("--resume_from_checkpoint ", named->string(), ": it is no checkpoint (it has no trainer_state.json)"));
    // Where torchrun starts the job again, that is where it began, not where it stands.
    if (restarts() == 0 || !last || step_of_checkpoint(*last) <= step_of_checkpoint(*named)) return named;
    say(str(last->string(),
            " is newer than --resume_from_checkpoint and counts, because this job may have been started again"));
    return last;
  }
  if (options_.overwrite_output_dir && !options_.resume_from_checkpoint) {
    if (restarts() > 0)
      throw InvalidArgument(str("--overwrite_output_dir: torchrun may start this job again, up to ", restarts(),
                                " times, and each start would begin from nothing. Leave the flag out and name an empty "
                                "--output_dir, or start torchrun with --max-restarts 0"));
    return std::nullopt;
  }
  if (!last && options_.resumes_from_last())
    throw InvalidArgument(str("--resume_from_checkpoint True: there is no checkpoint in ", output_dir_.string()));
  return last;
}

std::optional<fs::path> QaRun::agreed_checkpoint() {
  constexpr int64_t kRefused = -3, kNamed = -2, kFromNothing = -1;  // else the step of one in output_dir
  at::Tensor chosen = at::tensor({kRefused}, at::kLong);
  std::optional<fs::path> checkpoint;
  std::exception_ptr refusal;
  if (world_.is_first()) try {
      check_writable(output_dir_);
      checkpoint = checkpoint_to_resume();
      if (const auto why = why_not_output_dir(options_, checkpoint.has_value() || is_unfinished(output_dir_)))
        throw InvalidArgument(*why);
      remove_remains(output_dir_);
      mark_unfinished(output_dir_);
      chosen.fill_(!checkpoint ? kFromNothing : checkpoint == named_checkpoint() ? kNamed : step_of_checkpoint(*checkpoint));
    } catch (...) {
      refusal = std::current_exception();  // the others are told first
    }
  world_.broadcast(chosen);
  if (refusal) std::rethrow_exception(refusal);
  if (world_.is_first()) return checkpoint;
  const auto step = chosen.item<int64_t>();
  if (step == kRefused) throw InvalidArgument("rank 0 cannot train into the output directory, and says why");
  if (step == kFromNothing) return std::nullopt;
  checkpoint = step == kNamed ? named_checkpoint() : output_dir_ / str("checkpoint-", step);
  if (!checkpoint) throw InvalidArgument("rank 0 was given --resume_from_checkpoint; every rank needs it");
  const Deadline deadline = Deadline::after(kCheckpointPatience);
  while (!fs::exists(*checkpoint / "trainer_state.json")) {
    if (deadline.passed())
      throw InvalidArgument(str("rank 0 goes on from ", checkpoint->string(),
                                ", and there is none on this host. It must be the same on every host"));
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  return checkpoint;
}

int QaRun::run() {
  try {
    run_to_the_end();
    termination_.reset();
    return Termination::wanted() ? kExitTerminated : 0;
  } catch (const Terminated&) {
    save_after_termination();
  } catch (const std::exception&) {
    if (!Termination::wanted()) throw;
    save_after_termination();  // that a peer was lost is no wonder then
  }
  return kExitTerminated;
}

void QaRun::run_to_the_end() {
  require_same_flags();
  native_bf16_ = (options_.bf16 || options_.bf16_full_eval) && all_compute_in_bf16();
  if (!options_.do_train && world_.is_first()) check_writable(output_dir_);
  const std::optional<fs::path> checkpoint = options_.do_train ? agreed_checkpoint() : std::nullopt;
  load_model(checkpoint.has_value());
  // What is wrong with data is said before any training.
  if (options_.do_eval) validation_ = data(Split::validation);
  if (options_.do_predict) test_ = data(Split::test);
  if (options_.do_train) train(checkpoint);
  if (validation_) evaluate_and_save(Split::validation, *validation_);
  if (test_) evaluate_and_save(Split::test, *test_);
  world_.barrier();
  if (options_.do_train && world_.is_first()) mark_finished(output_dir_);
}

void QaRun::load_model(bool resumes) {
  const fs::path model_dir = model_directory(options_.model_name_or_path, hub_, options_.model_revision);
  const auto named = [&](const std::optional<std::string>& name, const auto& find) {
    return name ? find(*name, hub_, options_.model_revision) : model_dir;
  };
  const fs::path config_dir = named(options_.config_name, config_directory);
  config_ = read_config(config_dir / "config.json");
  tokenizer_ = load_tokenizer(named(options_.tokenizer_name, tokenizer_directory), config_dir);
  if (world_.is_first() && options_.do_train) tokenizer_files_ = read_files_of(*tokenizer_);
  if (tokenizer_->vocabulary_size() > config_.vocabulary)
    throw InvalidArgument(str("the tokenizer has ", tokenizer_->vocabulary_size(), " tokens, the model of ",
                              model_dir.string(), " knows ", config_.vocabulary, ": they do not belong together"));
  const std::string shorter = shorter_sentence(options_.max_seq_length, config_.longest(), *tokenizer_);
  if (!shorter.empty()) say(shorter);
  model_ = std::make_unique<QaModel>(config_);
  model_->checkpoint_gradients(options_.gradient_checkpointing);
  if (resumes) return;  // the weights are the checkpoint's
  const LoadedWeights loaded = load_weights(*model_, model_dir, static_cast<uint64_t>(options_.seed));
  if (!loaded.new_ones.empty())
    say("the head for question answering is new: this model needs to be trained before it answers well");
  if (options_.do_train) return;  // with the moments, once those are known
  std::vector<at::Tensor> weights;
  for (const Parameter& each : model_->parameters()) weights.push_back(each.value.detach());
  require_agreement("the weights (is the model the same on every host?)", fingerprint(weights));
}

void QaRun::train(const std::optional<fs::path>& checkpoint) {
  train_data_ = data(Split::train);
  const std::vector<Feature>& features = train_data_->features;
  optimizer_ = std::make_unique<AdamW>(model_->parameters(), AdamWOptions{options_.adam_beta1, options_.adam_beta2,
                                                                          options_.adam_epsilon, options_.weight_decay});
  std::optional<Standing> standing;
  std::optional<TrainerState> state;
  if (checkpoint) {
    standing = load_checkpoint(*checkpoint, *model_, *optimizer_, features, options_.sampling_seed());
    state = load_state(*checkpoint / "trainer_state.json");
    say(str("goes on from ", checkpoint->string(), ", step ", standing->global_step));
  }
  require_agreement("the step to go on from (is the output directory the same on every host?)",
                    standing ? static_cast<uint64_t>(standing->global_step) : 0);
  require_agreement("the weights to begin with (is the model, or the checkpoint, the same on every host?)",
                    optimizer_->fingerprint());
  if (options_.bf16 && native_bf16_) optimizer_->split_parameters();
  training_ = std::make_unique<Training>(options_, world_, *model_, *optimizer_, features, tokenizer_->pair_template());
  if (standing) training_->resume(*standing);
  journal_ = std::make_unique<Journal>(options_, world_, *training_, std::move(state));
  saved_step_ = training_->standing().global_step;
  if (world_.is_first())
    if (const std::string done = clear_later_checkpoints(output_dir_, saved_step_, options_.overwrite_output_dir);
        !done.empty())
      say(done);
  termination_ = std::make_unique<Termination>(world_.is_first() ? kPatienceOfFirst : kPatienceOfOthers,
                                               [this] { return end_alone(); });

  const Start start{now(), training_->standing().global_step, training_->epochs_done()};
  train_steps(*training_, *journal_);
  finish_training(*training_, *journal_, start);
}

void QaRun::train_steps(Training& training, Journal& journal) {
  while (!training.finished()) {
    training.step(Termination::wanted());
    const int64_t step = training.standing().global_step;
    const auto due = [&](const std::string& strategy, int64_t every) {
      return (strategy == "steps" && step % every == 0) || (strategy == "epoch" && training.at_end_of_epoch());
    };
    const TrainerState& state = journal.state();
    {
      const std::scoped_lock lock(training.state_mutex());
      journal.after_step(training);
      if (due(options_.logging_strategy, state.logging_steps) || (step == 1 && options_.logging_first_step))
        journal.report(training, training.report());
    }
    if (due(options_.eval_strategy, state.eval_steps) && !training.stop_agreed()) {
      const Json metrics = evaluate(Split::validation, *validation_, training.epochs_done());
      const std::scoped_lock lock(training.state_mutex());
      journal.log(metrics);
    }
    // The last step too, as HF's Trainer does: what follows it can be repeated without it.
    const bool last = training.finished() && options_.save_strategy == "steps";
    if (training.stop_agreed() || last || due(options_.save_strategy, state.save_steps)) save();
    if (training.stop_agreed()) throw Terminated();
  }
  journal.finish();
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
  {
    const std::scoped_lock lock(training.state_mutex());
    journal.log(metrics);
  }
  metrics["train_samples"] = training.samples();
  tell_stragglers(training.times());
  if (!world_.is_first()) return;
  save_model(output_dir_, *model_, *optimizer_, tokenizer_files_);
  save_metrics(output_dir_, "train", metrics);
  save_state(journal.state(), output_dir_ / "trainer_state.json");
  std::cout << metrics_table("train", metrics) << std::flush;
}

void QaRun::require_agreement(const char* what, uint64_t number) const {
  const at::Tensor all = world_.gather(at::tensor({static_cast<int64_t>(number)}, at::kLong));
  for (int rank = 1; rank < world_.size(); ++rank)
    if (all[rank][0].item<int64_t>() != all[0][0].item<int64_t>())
      throw InvalidArgument(str("rank ", rank, " does not agree with rank 0 on ", what));
}

void QaRun::require_same_flags() const {
  std::vector<std::string> names;
  std::vector<int64_t> hashes;
  const Json flags = shared_flags(options_);
  for (const auto& [name, value] : flags.items()) {
    names.push_back(name);
    const std::string text = value.dump();
    Fnv hash;
    hash.mix(text.data(), text.size());
    hashes.push_back(static_cast<int64_t>(hash.value()));
  }
  const at::Tensor all = world_.gather(at::tensor(hashes, at::kLong));
  for (int rank = 1; rank < world_.size(); ++rank)
    for (size_t i = 0; i < names.size(); ++i)
      if (all[rank][static_cast<int64_t>(i)].item<int64_t>() != all[0][static_cast<int64_t>(i)].item<int64_t>())
        throw InvalidArgument(str("rank ", rank, " was not given the same --", names[i],
                                  " as rank 0; all ranks of a run need the same flags, but for paths"));
}

bool QaRun::all_compute_in_bf16() const {
  const at::Tensor native = world_.gather(at::tensor({int64_t{bf16_.native}}, at::kLong));
  const auto count = native.sum().item<int64_t>();
  if (count == world_.size() || count == 0) {
    say(bf16_.sentence);
    return count > 0;
  }
  if (!bf16_.native) std::cerr << str("rank ", world_.rank(), ": ", bf16_.sentence) << std::endl;
  say(str("bf16: all ranks compute in fp32, because ", world_.size() - count, " of ", world_.size(), " do"));
  return false;
}

void QaRun::tell_stragglers(const RankTimes& mine) const {
  const at::Tensor all = world_.gather(at::tensor({mine.compute_seconds, mine.wait_seconds}, at::kDouble));
  std::vector<RankTimes> ranks;
  for (int rank = 0; rank < world_.size(); ++rank)
    ranks.push_back({all[rank][0].item<double>(), all[rank][1].item<double>()});
  if (const std::string sentence = straggler_sentence(ranks); !sentence.empty()) say(sentence);
}

void QaRun::check() const {
  if (Termination::wanted()) throw Terminated();
  world_.check();
}

void QaRun::save() {
  // A rank that ends early must not do so while the checkpoint is written: mpirun would end the one that writes it. So the
  // others hold the lock as well, and who would end alone waits for it.
  std::unique_lock lock(training_->state_mutex());
  if (world_.is_first()) {
    save_last_step();
    lock.unlock();
  }
  world_.barrier();
}

void QaRun::save_last_step() {
  if (training_->standing().global_step == saved_step_) return;
  journal_->after_step(*training_);
  save_checkpoint(output_dir_, *model_, *optimizer_, tokenizer_files_, *training_, to_text(journal_->state()),
                  options_.save_total_limit, options_.save_only_model);
  saved_step_ = training_->standing().global_step;
}

std::string QaRun::how_to_go_on() const {
  if (options_.save_only_model) return "with --save_only_model it cannot be gone on from";
  std::string without;
  if (options_.overwrite_output_dir) without = " without --overwrite_output_dir";
  if (named_checkpoint() && restarts() == 0)
    without += str(without.empty() ? " without" : " and", " --resume_from_checkpoint");
  return str("give the same command", without, " to go on");
}

void QaRun::save_after_termination() {
  if (!world_.is_first() || !training_) return;
  const std::scoped_lock lock(training_->state_mutex());
  save_last_step();
  journal_->finish();
  std::cerr << str("SIGTERM: step ", saved_step_, " is saved; ", how_to_go_on()) << std::endl;
}

bool QaRun::end_alone() {
  if (world_.is_first()) {
    save_after_termination();
    return true;
  }
  std::unique_lock lock(training_->state_mutex(), std::try_to_lock);
  if (lock) return true;
  lock.lock();  // a checkpoint is being written
  return false;
}

Logits QaRun::logits_of(const QaData& data) {
  try {
    return compute_logits(native_bf16_ ? model_->in_bf16() : *model_, data.features,
                          tokenizer_->pair_template(), options_.per_device_eval_batch_size, world_, [this] { check(); });
  } catch (...) {
    // Whatever ends an evaluation, the steps before it are complete.
    if (training_ && world_.is_first()) {
      const std::scoped_lock lock(training_->state_mutex());
      save_last_step();
    }
    throw;
  }
}

Json QaRun::evaluate(Split split, const QaData& data, std::optional<double> epoch) {
  const double start = now();
  const Logits logits = logits_of(data);
  // As in run_qa.py: predict_predictions.json, predict_results.json, and in it test_f1.
  const std::string files = split == Split::test ? "predict" : "eval", prefix = split == Split::test ? "test" : "eval";
  Json metrics = Json::object();
  if (world_.is_first()) {
    const std::vector<Prediction> predictions =
        postprocess(data.examples, data.features, logits.of_features(),
                    {.version_2_with_negative = options_.version_2_with_negative,
                     .n_best_size = options_.n_best_size,
                     .max_answer_length = options_.max_answer_length,
                     .null_score_diff_threshold = options_.null_score_diff_threshold});
    write_predictions(output_dir_, files, predictions, options_.version_2_with_negative);
    if (split != Split::test || can_be_scored(data.examples, options_.version_2_with_negative)) {
      const Json scores = options_.version_2_with_negative ? squad_v2_metrics(data.examples, predictions)
                                                           : squad_v1_metrics(data.examples, predictions);
      for (const auto& [name, value] : scores.items()) metrics[prefix + "_" + name] = value;
    }
    const int64_t features = static_cast<int64_t>(data.features.size());
    const int64_t a_step = options_.per_device_eval_batch_size * world_.size();
    metrics.update(speed_metrics(prefix, now() - start, features, (features + a_step - 1) / a_step));
    metrics[files + "_samples"] = features;
    if (epoch) metrics["epoch"] = *epoch;
  }
  world_.barrier();
  return metrics;
}

void QaRun::evaluate_and_save(Split split, const QaData& data) {
  const Json metrics = evaluate(split, data, epochs_done_);
  if (!world_.is_first()) return;
  const char* name = split == Split::test ? "predict" : "eval";
  if (training_ && split == Split::validation) {
    const std::scoped_lock lock(training_->state_mutex());
    journal_->log(metrics);
  }
  save_metrics(output_dir_, name, metrics);
  std::cout << metrics_table(name, metrics) << std::flush;
}

}  // namespace

int run_qa(const std::vector<std::string>& arguments) {
  Termination::install();
  std::signal(SIGPIPE, SIG_IGN);  // nobody may read what is said any more: a run does not end for it
  const QaCommand command = parse_qa(arguments);
  if (command.given.help) {
    std::cout << qa_help();
    return 0;
  }
  if (command.options.dataset_name)
    require_dataset(*command.options.dataset_name, command.options.dataset_config_name.value_or(""));
  // Forks: before torch's threads.
  const Bf16Plan bf16 = command.options.bf16 || command.options.bf16_full_eval ? bf16_plan() : Bf16Plan{};
  torch_ext::install_block_cache();
  return QaRun(command, World::join(std::chrono::seconds(command.options.ddp_timeout)), bf16).run();
}

}  // namespace trireme::trainer
