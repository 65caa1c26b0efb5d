// What `trireme qa` is told: run_qa.py's flags, one member each, with its names and defaults.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/trainer/options/flags.h"

namespace trireme::trainer {

struct QaOptions {
  // Model.
  std::string model_name_or_path;
  std::optional<std::string> config_name, tokenizer_name, cache_dir;
  std::string model_revision = "main";
  std::optional<std::string> token;

  // Data.
  std::optional<std::string> dataset_name, dataset_config_name;
  std::optional<std::string> train_file, validation_file, test_file;
  int64_t max_seq_length = 384;
  int64_t doc_stride = 128;
  std::optional<int64_t> max_train_samples, max_eval_samples, max_predict_samples;
  std::optional<int64_t> preprocessing_num_workers;

  // Answers.
  bool version_2_with_negative = false;
  double null_score_diff_threshold = 0.0;
  int64_t n_best_size = 20;
  int64_t max_answer_length = 30;

  // What to do.
  bool do_train = false, do_eval = false, do_predict = false;
  std::string output_dir;
  bool overwrite_output_dir = false;
  std::optional<std::string> resume_from_checkpoint;  // "True": the last one in output_dir

  // Training.
  int64_t per_device_train_batch_size = 8;
  int64_t per_device_eval_batch_size = 8;
  int64_t gradient_accumulation_steps = 1;
  double num_train_epochs = 3.0;
  int64_t max_steps = -1;  // above 0: instead of num_train_epochs
  double learning_rate = 5e-5;
  std::string lr_scheduler_type = "linear";
  double warmup_ratio = 0.0;
  double warmup_steps = 0;  // a share of all steps below 1
  double weight_decay = 0.0;
  double adam_beta1 = 0.9, adam_beta2 = 0.999, adam_epsilon = 1e-8;
  double max_grad_norm = 1.0;  // 0: no clipping
  std::string optim = "adamw_torch_fused";
  bool dataloader_drop_last = false;
  bool gradient_checkpointing = false;
  int64_t seed = 42;
  std::optional<int64_t> data_seed;

  // Machine.
  bool bf16 = false, bf16_full_eval = false;
  bool use_cpu = false, no_cuda = false, use_ipex = false;
  std::optional<std::string> ddp_backend;
  int64_t ddp_timeout = 1800;  // seconds
  std::optional<int64_t> ddp_bucket_cap_mb;

  // Reports and checkpoints. Steps below 1 are a share of all steps: see steps_of().
  std::string logging_strategy = "steps";
  double logging_steps = 500;
  bool logging_first_step = false;
  std::optional<std::string> logging_dir;
  std::vector<std::string> report_to = {"all"};
  std::string save_strategy = "steps";
  double save_steps = 500;
  std::optional<int64_t> save_total_limit;
  bool save_only_model = false;
  std::string eval_strategy = "no";
  std::optional<double> eval_steps;  // as logging_steps, where it is not given
  std::optional<bool> disable_tqdm;
  std::string log_level = "passive";

  bool writes_tensorboard() const;
  bool resumes_from_last() const;  // --resume_from_checkpoint True
  int64_t sampling_seed() const { return data_seed.value_or(seed); }
};

// The table, bound to `options`.
FlagTable qa_flags(QaOptions& options);

// Parses and checks. InvalidArgument where an argument is wrong or arguments do not fit together. `options` is as given
// where --help was.
struct QaCommand {
  QaOptions options;
  Given given;
};
QaCommand parse_qa(const std::vector<std::string>& arguments);
std::string qa_help();

// What run_qa.py and TrainingArguments check and complete once all flags are known: part of parse_qa().
void check_and_complete(QaOptions& options);

// Every flag that must be the same on all ranks, with what it has: all that act, but for names and paths, what rank 0
// alone acts on, how many threads tokenise and how much a rank says.
Json shared_flags(const QaOptions& options);

// A number of steps: a value below 1 is a share of all, rounded up.
int64_t steps_of(double value, int64_t all_steps);

// --warmup_steps counts before --warmup_ratio.
int64_t warmup_steps_of(const QaOptions& options, int64_t all_steps);

// Why training may not begin in output_dir, or nothing: it holds something already, none of it a checkpoint to go on from,
// and nobody said
// --overwrite_output_dir. `has_checkpoint` is the trainer's knowledge.
std::optional<std::string> why_not_output_dir(const QaOptions& options, bool has_checkpoint);

}  // namespace trireme::trainer
