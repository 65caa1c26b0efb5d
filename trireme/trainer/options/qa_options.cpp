#include "trireme/trainer/options/qa_options.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <utility>

#include "trireme/base/error.h"

namespace trireme::trainer {
namespace {

constexpr std::string_view kIntroduction =
    "trireme qa: fine-tune a model to answer questions from a text, and evaluate it, on CPUs.\n"
    "\n"
    "  trireme qa --model_name_or_path DIR --train_file train.json --do_train \\\n"
    "             --validation_file dev.json --do_eval --output_dir OUT\n"
    "  mpirun -n 2 trireme qa ...       the same on two processes; torchrun starts it as well\n"
    "  trireme qa arguments.json        the arguments from a file: {\"max_steps\": 100, ...}\n"
    "\n"
    "Flags are run_qa.py's, with its defaults in brackets: --flag value or --flag=value. A boolean one\n"
    "needs no value (--do_train), or True or False. N is a whole number, X any number. The last counts.\n";

// Names and paths, which may differ from host to host, what rank 0 alone acts on, how many threads tokenise, how much a rank says.
constexpr const char* kOwnFlags[] = {"model_name_or_path",
                                     "config_name",
                                     "tokenizer_name",
                                     "cache_dir",
                                     "model_revision",
                                     "token",
                                     "dataset_name",
                                     "dataset_config_name",
                                     "train_file",
                                     "validation_file",
                                     "test_file",
                                     "preprocessing_num_workers",
                                     "output_dir",
                                     "overwrite_output_dir",
                                     "resume_from_checkpoint",
                                     "logging_dir",
                                     "disable_tqdm",
                                     "log_level"};

[[noreturn]] void refuse(const std::string& why) { throw InvalidArgument(why); }

void check_file(std::string_view flag, const std::optional<std::string>& file) {
  if (!file || file->ends_with(".json")) return;
  refuse(str("--", flag, " ", *file, ": a .json file in SQuAD's form is wanted; a .csv file needs to be converted first"));
}

void check_data(const QaOptions& o) {
  if (!o.dataset_name && !o.train_file && !o.validation_file && !o.test_file)
    refuse("there is no data: give --train_file, --validation_file or --test_file, or --dataset_name");
  check_file("train_file", o.train_file);
  check_file("validation_file", o.validation_file);
  check_file("test_file", o.test_file);
  for (const auto& [flag, file] : {std::pair("--train_file", &o.train_file), {"--validation_file", &o.validation_file}})
    if (o.dataset_name && *file)
      refuse(str("--dataset_name ", *o.dataset_name, " and ", flag, " ", **file,
                 ": give a dataset's name or files, not both"));
  if (o.do_train && !o.train_file && !o.dataset_name) refuse("--do_train needs --train_file (or --dataset_name)");
  if (o.do_eval && !o.validation_file && !o.dataset_name) refuse("--do_eval needs --validation_file (or --dataset_name)");
  if (o.do_predict && !o.test_file) refuse("--do_predict needs --test_file: SQuAD's own test set is not public");
  if (o.doc_stride >= o.max_seq_length)
    refuse(str("--doc_stride ", o.doc_stride, ": it must be below --max_seq_length, which is ", o.max_seq_length));
}

void check_job(const QaOptions& o) {
  if (o.model_name_or_path.empty())
    refuse("--model_name_or_path is missing: a directory with a model, or its name on the hub");
  if (o.output_dir.empty()) refuse("--output_dir is missing: where do the model and the results go?");
  if (!o.do_train && !o.do_eval && !o.do_predict)
    refuse("there is nothing to do: give --do_train, --do_eval or --do_predict");
  if (o.resume_from_checkpoint && !o.do_train)
    refuse("--resume_from_checkpoint needs --do_train; to evaluate a checkpoint, give it as --model_name_or_path");
}

void check_steps(std::string_view strategy_flag, const std::string& strategy, std::string_view flag, double steps) {
  if (strategy == "steps" && steps <= 0) refuse(str("--", strategy_flag, " steps needs --", flag, " above 0"));
}

void complete_evaluation(QaOptions& o) {
  if (o.eval_strategy == "no") return;
  o.do_eval = true;  // as TrainingArguments does
  if (o.eval_strategy == "steps" && o.eval_steps.value_or(0) == 0) o.eval_steps = o.logging_steps;
}

// "~/out" from a file or behind '=' was not expanded by a shell.
void expand_home(std::string& path) {
  const char* home = std::getenv("HOME");
  if (home != nullptr && (path == "~" || path.starts_with("~/"))) path = home + path.substr(1);
}

void expand_home(std::optional<std::string>& path) {
  if (path) expand_home(*path);
}

// "True", "true" and "1" are one; "False" is nothing.
void complete_resumption(QaOptions& o) {
  if (!o.resume_from_checkpoint) return;
  std::string word = *o.resume_from_checkpoint;
  for (char& c : word) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  if (word == "true" || word == "1" || word == "yes") o.resume_from_checkpoint = "True";
  if (word == "false" || word == "0" || word == "no" || word.empty()) o.resume_from_checkpoint.reset();
}

bool has_files(const std::filesystem::path& directory) {
  std::error_code error;
  return std::filesystem::is_directory(directory, error) && !std::filesystem::is_empty(directory, error) && !error;
}

}  // namespace

bool QaOptions::writes_tensorboard() const {
  return std::ranges::any_of(report_to, [](const std::string& name) { return name == "tensorboard" || name == "all"; });
}

bool QaOptions::resumes_from_last() const { return resume_from_checkpoint == "True"; }

void check_and_complete(QaOptions& options) {
  for (auto* path : {&options.model_name_or_path, &options.output_dir}) expand_home(*path);
  for (auto* path : {&options.config_name, &options.tokenizer_name, &options.cache_dir, &options.train_file,
                     &options.validation_file, &options.test_file, &options.logging_dir, &options.resume_from_checkpoint})
    expand_home(*path);
  complete_resumption(options);
  complete_evaluation(options);
  check_steps("logging_strategy", options.logging_strategy, "logging_steps", options.logging_steps);
  check_steps("save_strategy", options.save_strategy, "save_steps", options.save_steps);
  check_steps("eval_strategy", options.eval_strategy, "eval_steps", options.eval_steps.value_or(0));
  check_job(options);
  check_data(options);
}

QaCommand parse_qa(const std::vector<std::string>& arguments) {
  QaCommand command;
  command.given = parse_flags(qa_flags(command.options), arguments);
  if (!command.given.help) check_and_complete(command.options);
  return command;
}

std::string qa_help() {
  QaOptions defaults;
  return help_text(qa_flags(defaults), kIntroduction);
}

Json shared_flags(const QaOptions& options) {
  QaOptions copy = options;
  Json flags = qa_flags(copy).to_json();
  for (const char* own : kOwnFlags) TRIREME_ENFORCE(flags.erase(own) == 1, own);
  return flags;
}

int64_t steps_of(double value, int64_t all_steps) {
  return static_cast<int64_t>(value < 1 ? std::ceil(static_cast<double>(all_steps) * value) : value);
}

int64_t warmup_steps_of(const QaOptions& options, int64_t all_steps) {
  return options.warmup_steps > 0 ? steps_of(options.warmup_steps, all_steps)
                                  : static_cast<int64_t>(std::ceil(static_cast<double>(all_steps) * options.warmup_ratio));
}

std::optional<std::string> why_not_output_dir(const QaOptions& options, bool has_checkpoint) {
  if (!options.do_train || options.overwrite_output_dir || options.resume_from_checkpoint || has_checkpoint)
    return std::nullopt;
  std::error_code error;
  if (std::filesystem::exists(options.output_dir, error) && !std::filesystem::is_directory(options.output_dir, error))
    return str("--output_dir ", options.output_dir, ": this is a file, not a directory");
  if (!has_files(options.output_dir)) return std::nullopt;
  return str("--output_dir ", options.output_dir,
             ": there is something in it already, and no checkpoint to go on from. Choose another, or say "
             "--overwrite_output_dir");
}

}  // namespace trireme::trainer
