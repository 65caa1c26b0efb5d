// Prints what the trainer makes of a file of questions, as JSON.
//   print_features '{"model": DIRECTORY, "questions": FILE, "max_length": 384, "doc_stride": 128, "with_labels": true,
//   "threads": 2}'
// one feature a line, and where there are "logits": FILE (floats: for each feature its start logits, then its end logits)
// and "folder", with postprocess's options beside them, the files of predictions instead. "seconds": true prints how long
// each step took.
#include <chrono>
#include <cstring>
#include <iostream>

#include "trireme/base/error.h"
#include "trireme/trainer/json/json.h"
#include "trireme/trainer/squad/features.h"
#include "trireme/trainer/squad/postprocess.h"
#include "trireme/trainer/squad/prediction_files.h"

using namespace trireme;
using namespace trireme::trainer;

static void print(const Example& example, const Feature& feature, const PairTemplate& pair) {
  Json spans = Json::array();
  for (size_t i = feature.context_begin; i < feature.context_end; ++i)
    spans.push_back({feature.span(i).begin, feature.span(i).end});
  const Json line = {{"id", example.id},
                     {"ids", feature.ids},
                     {"types", type_ids(feature, pair)},
                     {"context", {feature.context_begin, feature.context_end}},
                     {"spans", std::move(spans)},
                     {"labels", {feature.start_position, feature.end_position}}};
  std::cout << line << '\n';
}

static std::vector<float> read_floats(const std::string& path) {
  const std::string bytes = read_file(path);
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(float));
  return values;
}

static void answer(const JsonPlace& given, const std::vector<Example>& examples, const std::vector<Feature>& features) {
  const std::vector<float> values = read_floats(given["logits"].string());
  std::vector<FeatureLogits> logits;
  size_t at = 0;
  for (const Feature& feature : features) {
    const size_t n = feature.ids.size();
    if (at + 2 * n > values.size()) throw InvalidArgument(str("there are only ", values.size(), " logits"));
    logits.push_back({{&values[at], n}, {&values[at + n], n}});
    at += 2 * n;
  }
  PostprocessOptions options;
  options.version_2_with_negative = given.boolean_or("version_2_with_negative", false);
  options.n_best_size = given.integer_or("n_best_size", options.n_best_size);
  options.max_answer_length = given.integer_or("max_answer_length", options.max_answer_length);
  options.null_score_diff_threshold = given.number_or("null_score_diff_threshold", 0);
  write_predictions(given["folder"].string(), "eval", postprocess(examples, features, logits, options),
                    options.version_2_with_negative);
}

static double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

static void run(const JsonPlace& given) {
  const std::unique_ptr<Tokenizer> tokenizer = load_tokenizer(given["model"].string());
  auto begin = std::chrono::steady_clock::now();
  const std::vector<Example> examples = read_squad(given["questions"].string(), {});
  const double reading = seconds_since(begin);
  FeatureOptions options;
  options.max_length = given.integer_or("max_length", options.max_length);
  options.doc_stride = given.integer_or("doc_stride", options.doc_stride);
  options.with_labels = given.boolean_or("with_labels", false);
  begin = std::chrono::steady_clock::now();
  const std::vector<Feature> features =
      make_features(examples, *tokenizer, options, static_cast<int>(given.integer_or("threads", 1)));
  if (given.boolean_or("summary", false)) {
    const Json times = {{"questions", examples.size()},
                        {"features", features.size()},
                        {"reading", reading},
                        {"tokenizing", seconds_since(begin)},
                        {"fingerprint", fingerprint(features)}};
    std::cout << times << '\n';
  } else if (given.has("logits")) {
    answer(given, examples, features);
  } else {
    for (const Feature& feature : features) print(examples[feature.example], feature, tokenizer->pair_template());
  }
}

int main(int count, char** arguments) {
  try {
    if (count != 2) throw InvalidArgument("one argument is wanted, see the head of print_features.cpp");
    const Json given = parse_json(arguments[1], "the argument");
    run({given, "the argument"});
  } catch (const Error& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
