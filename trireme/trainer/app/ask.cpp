// `trireme ask`: a fine-tuned model answers questions about a text.
#include <ATen/Parallel.h>

#include <algorithm>
#include <iomanip>
#include <iostream>
#include <iterator>
#include <numeric>

#include "trireme/base/error.h"
#include "trireme/trainer/app/commands.h"
#include "trireme/trainer/app/download_lines.h"
#include "trireme/trainer/app/qa_data.h"
#include "trireme/trainer/model/weights.h"
#include "trireme/trainer/options/small_options.h"
#include "trireme/trainer/tokenizer/utf8.h"
#include "trireme/trainer/train/evaluate.h"

namespace trireme::trainer {
namespace {

constexpr int64_t kBatch = 16;

std::vector<std::string> questions_of(const AskOptions& options) {
  if (!options.question.empty()) return options.question;
  std::vector<std::string> questions;
  for (std::string line; std::getline(std::cin, line);)
    if (line.find_first_not_of(" \t\r") != std::string::npos) questions.push_back(line);
  if (questions.empty()) throw InvalidArgument("no question was asked: give --question, or one a line on stdin");
  return questions;
}

std::vector<Example> examples_of(const AskOptions& options) {
  const auto context =
      std::make_shared<const std::string>(options.context ? *options.context : read_file(*options.context_file));
  check_utf8(*context, options.context ? "--context" : "--context_file " + *options.context_file);
  if (context->find_first_not_of(" \t\r\n") == std::string::npos)
    throw InvalidArgument("the context is empty: there is nothing to find an answer in");
  std::vector<Example> examples;
  for (const std::string& question : questions_of(options)) {
    check_utf8(question, str("question ", examples.size() + 1));
    examples.push_back({str(examples.size()), "", question, context, {}});
  }
  return examples;
}

void print(const std::vector<Example>& examples, const std::vector<Prediction>& predictions, const AskOptions& options) {
  Json json = Json::array();
  for (size_t i = 0; i < examples.size(); ++i) {
    const std::vector<Candidate> found = answers_of(predictions[i]);
    Json answers = Json::array();
    if (!options.json) std::cout << examples[i].question << "\n" << (found.empty() ? "  (no answer)\n" : "");
    for (size_t n = 0; n < std::min(static_cast<size_t>(options.top), found.size()); ++n) {
      if (options.json)
        answers.push_back({{"answer", found[n].text},
                           {"probability", found[n].probability},
                           {"score", found[n].start_logit + found[n].end_logit}});
      else
        std::cout << "  " << (found[n].text.empty() ? "(no answer)" : found[n].text) << "  " << std::fixed
                  << std::setprecision(3) << found[n].probability << "\n";
    }
    if (options.json) json.push_back({{"question", examples[i].question}, {"answers", answers}});
  }
  if (options.json) std::cout << json.dump(2) << "\n";
}

}  // namespace

int run_ask(const std::vector<std::string>& arguments) {
  const AskCommand command = parse_ask(arguments);
  const AskOptions& options = command.options;
  if (command.given.help) {
    std::cout << ask_help();
    return 0;
  }
  settle_threads();
  auto hub = HubSettings::from_environment(options.cache_dir.value_or(""), options.token.value_or(""));
  hub.progress = download_lines();
  const std::filesystem::path directory = model_directory(options.model_name_or_path, hub, options.model_revision);
  const auto tokenizer = load_tokenizer(
      options.tokenizer_name ? tokenizer_directory(*options.tokenizer_name, hub, options.model_revision) : directory,
      directory);
  QaModel model(read_config(directory / "config.json"));
  if (!load_weights(model, directory, 0).new_ones.empty())
    throw InvalidArgument(
        str(directory.string(), " has no head for question answering: train it first, with `trireme qa --do_train`"));

  const int64_t longest = model.config().longest();
  if (const std::string shorter = shorter_sentence(options.max_seq_length, longest, *tokenizer); !shorter.empty())
    std::cerr << shorter << std::endl;

  const std::vector<Example> examples = examples_of(options);
  const int64_t length = std::min({options.max_seq_length, longest, tokenizer->longest()});
  const std::vector<Feature> features = make_features(
      examples, *tokenizer,
      {.max_length = length, .doc_stride = options.doc_stride, .with_labels = false, .max_features = -1},
      at::get_num_threads());
  const Logits logits = compute_logits(model, features, tokenizer->pair_template(), kBatch, World());
  print(examples,
        postprocess(examples, features, logits.of_features(),
                    {.version_2_with_negative = options.version_2_with_negative,
                     .n_best_size = options.n_best_size,
                     .max_answer_length = options.max_answer_length,
                     .null_score_diff_threshold = options.null_score_diff_threshold}),
        options);
  return 0;
}

}  // namespace trireme::trainer
