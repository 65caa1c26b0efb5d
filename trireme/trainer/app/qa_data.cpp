#include "trireme/trainer/app/qa_data.h"

#include <algorithm>

#include "trireme/base/error.h"

namespace trireme::trainer {
namespace {

std::filesystem::path file_of(const QaOptions& options, Split split, const HubSettings& hub) {
  if (options.dataset_name && split != Split::test)
    return dataset_file(*options.dataset_name, split == Split::train, hub, options.dataset_config_name.value_or(""));
  const auto& given = split == Split::train        ? options.train_file
                      : split == Split::validation ? options.validation_file
                                                   : options.test_file;
  TRIREME_ENFORCE(given, "parse_qa() lets nothing pass that has no file");
  return *given;
}

std::optional<int64_t> limit_of(const QaOptions& options, Split split) {
  return split == Split::train        ? options.max_train_samples
         : split == Split::validation ? options.max_eval_samples
                                      : options.max_predict_samples;
}

}  // namespace

bool can_be_scored(const std::vector<Example>& examples, bool version_2_with_negative) {
  const auto has_answers = [](const Example& example) { return !example.answers.empty(); };
  return version_2_with_negative ? std::ranges::any_of(examples, has_answers) : std::ranges::all_of(examples, has_answers);
}

std::string shorter_sentence(int64_t max_seq_length, int64_t longest, const Tokenizer& tokenizer) {
  if (max_seq_length <= std::min(longest, tokenizer.longest())) return "";
  return tokenizer.longest() < longest
             ? str("--max_seq_length ", max_seq_length, ": the tokenizer's model_max_length is ", tokenizer.longest(),
                   " tokens, and features have no more")
             : str("--max_seq_length ", max_seq_length, ": the model takes ", longest,
                   " tokens at most, and features have no more");
}

QaData load_data(const QaOptions& options, Split split, const Tokenizer& tokenizer, int64_t longest, const HubSettings& hub,
                 int threads) {
  QaData data;
  data.file = file_of(options, split, hub);
  const int64_t limit = limit_of(options, split).value_or(-1);
  // A test set may come without answers.
  data.examples = read_squad(data.file, {.answers_wanted = split != Split::test, .max_samples = limit});
  if (split != Split::test && !options.version_2_with_negative) require_answers(data.examples, data.file.string());
  data.features = make_features(data.examples, tokenizer,
                                {.max_length = std::min({options.max_seq_length, longest, tokenizer.longest()}),
                                 .doc_stride = options.doc_stride,
                                 .with_labels = split == Split::train,
                                 .max_features = limit},
                                threads);
  return data;
}

}  // namespace trireme::trainer
