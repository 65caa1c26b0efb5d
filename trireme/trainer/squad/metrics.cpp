#include "trireme/trainer/squad/metrics.h"

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <unordered_map>

#include "trireme/base/error.h"
#include "trireme/trainer/squad/python_text.h"

namespace trireme::trainer {
namespace {

using Words = std::vector<std::string>;
using PredictionsById = std::unordered_map<std::string_view, const Prediction*>;

// Python's string.punctuation: what is left of printable ASCII.
bool is_punctuation(char c) { return c > ' ' && c < 0x7f && !(c != '_' && is_python_word(static_cast<char32_t>(c))); }

bool is_article(std::string_view word) { return word == "a" || word == "an" || word == "the"; }

// The regular expression \b(a|an|the)\b: a run of word characters that is an article, also beside a sign or a combining
// mark.
std::string without_articles(std::string_view text) {
  std::string result;
  size_t run = 0;  // where the current run of word characters begins in result
  const auto end_run = [&] {
    if (is_article(std::string_view(result).substr(run))) result.replace(run, std::string::npos, " ");
  };
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    const bool in_word = is_python_word(next_code_point(text, at));
    if (!in_word) end_run();
    result.append(text.substr(begin, at - begin));
    if (!in_word) run = result.size();
  }
  end_run();
  return result;
}

Words split(std::string_view text) {
  Words words;
  bool in_word = false;
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    const bool is_space = is_python_space(next_code_point(text, at));
    if (!is_space && !in_word) words.emplace_back();
    if (!is_space) words.back().append(text.substr(begin, at - begin));
    in_word = !is_space;
  }
  return words;
}

size_t words_in_common(const Words& a, const Words& b) {
  std::map<std::string_view, size_t> left;
  for (const std::string& word : a) ++left[word];
  size_t common = 0;
  for (const std::string& word : b)
    if (const auto found = left.find(word); found != left.end() && found->second > 0) {
      --found->second;
      ++common;
    }
  return common;
}

// Two answers without a word: version 1.1 calls that no match, version 2.0 agreement that there is no answer.
double f1_of(const Words& truth, const Words& predicted, double both_empty) {
  if (truth.empty() && predicted.empty()) return both_empty;
  const auto common = static_cast<double>(words_in_common(truth, predicted));
  if (common == 0) return 0;
  const double precision = common / static_cast<double>(predicted.size());
  const double recall = common / static_cast<double>(truth.size());
  return 2 * precision * recall / (precision + recall);
}

struct Score {
  double exact = 0, f1 = 0;
};

Score best_score(const std::vector<Words>& truths, const Words& predicted, double f1_of_both_empty) {
  Score best;
  for (const Words& truth : truths) {
    best.exact = std::max(best.exact, truth == predicted ? 1.0 : 0.0);
    best.f1 = std::max(best.f1, f1_of(truth, predicted, f1_of_both_empty));
  }
  return best;
}

std::vector<Words> true_words(const Example& example) {
  std::vector<Words> truths;
  for (const Answer& answer : example.answers) truths.push_back(normalized_words(answer.text));
  return truths;
}

PredictionsById by_id(const std::vector<Prediction>& predictions) {
  PredictionsById found;
  for (const Prediction& prediction : predictions) found[prediction.id] = &prediction;
  return found;
}

void require_questions(const std::vector<Example>& examples) {
  if (examples.empty()) throw InvalidArgument("there is no question to be scored");
}

// What version 2.0 knows of one question.
struct Judged {
  bool has_answer = false;
  const Prediction* prediction = nullptr;
  Score score;
};

Judged judge(const Example& example, const PredictionsById& predictions) {
  const auto found = predictions.find(example.id);
  if (found == predictions.end()) throw InvalidArgument(str("there is no prediction for question ", example.id));
  std::vector<Words> truths = true_words(example);
  std::erase_if(truths, [](const Words& words) { return words.empty(); });
  if (truths.empty()) truths.emplace_back();  // only no answer is right
  return {!example.answers.empty(), found->second, best_score(truths, normalized_words(found->second->text), 1)};
}

void add_means(Json& metrics, const std::string& prefix, const std::vector<Judged>& judged,
               const std::function<bool(const Judged&)>& counts) {
  Score sum;
  int64_t total = 0;
  for (const Judged& one : judged) {
    if (!counts(one)) continue;
    sum.exact += one.score.exact;
    sum.f1 += one.score.f1;
    ++total;
  }
  if (total == 0) return;
  metrics[prefix + "exact"] = 100 * sum.exact / static_cast<double>(total);
  metrics[prefix + "f1"] = 100 * sum.f1 / static_cast<double>(total);
  metrics[prefix + "total"] = total;
}

// Starts with no answer to any question and lets them in, the surest first. What each one then adds: its score, or -1 for an
// answer to a question that has none. As run_qa.py is equally sure of all, that is the order of the predictions, in which
// `judged` are, and the threshold is 0.
void add_best(Json& metrics, const std::string& name, const std::vector<Judged>& judged, double Score::*score) {
  double current = 0;
  for (const Judged& one : judged) current += one.has_answer ? 0 : 1;
  double best = current;
  for (const Judged& one : judged) {
    current += one.has_answer ? one.score.*score : one.prediction->text.empty() ? 0 : -1;
    best = std::max(best, current);
  }
  metrics["best_" + name] = 100 * best / static_cast<double>(judged.size());
  metrics["best_" + name + "_thresh"] = 0.0;
}

}  // namespace

std::vector<std::string> normalized_words(std::string_view answer) {
  std::string text = python_lower(answer);
  std::erase_if(text, is_punctuation);
  return split(without_articles(text));
}

Json squad_v1_metrics(const std::vector<Example>& examples, const std::vector<Prediction>& predictions) {
  require_questions(examples);
  const PredictionsById found = by_id(predictions);
  Score sum;
  for (const Example& example : examples) {
    if (example.answers.empty())
      throw InvalidArgument(str("question ", example.id, " has no answer to compare with; see --version_2_with_negative"));
    const auto prediction = found.find(example.id);
    if (prediction == found.end()) continue;
    const Score score = best_score(true_words(example), normalized_words(prediction->second->text), 0);
    sum.exact += score.exact;
    sum.f1 += score.f1;
  }
  const auto total = static_cast<double>(examples.size());
  return {{"exact_match", 100 * sum.exact / total}, {"f1", 100 * sum.f1 / total}};
}

Json squad_v2_metrics(const std::vector<Example>& examples, const std::vector<Prediction>& predictions) {
  require_questions(examples);
  const PredictionsById found = by_id(predictions);
  std::vector<Judged> judged;
  for (const Example& example : examples) judged.push_back(judge(example, found));

  Json metrics = Json::object();
  add_means(metrics, "", judged, [](const Judged&) { return true; });
  add_means(metrics, "HasAns_", judged, [](const Judged& one) { return one.has_answer; });
  add_means(metrics, "NoAns_", judged, [](const Judged& one) { return !one.has_answer; });

  std::sort(judged.begin(), judged.end(), [](const Judged& a, const Judged& b) { return a.prediction < b.prediction; });
  add_best(metrics, "exact", judged, &Score::exact);
  add_best(metrics, "f1", judged, &Score::f1);
  return metrics;
}

}  // namespace trireme::trainer
