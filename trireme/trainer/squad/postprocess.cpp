#include "trireme/trainer/squad/postprocess.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include "trireme/base/error.h"

namespace trireme::trainer {
namespace {

// Sums of logits are rounded to float, as numpy does: with it, equal scores are equal in the same places.
struct Scored {
  uint32_t begin = 0, end = 0;  // bytes of the context; 0, 0 is the null answer
  float score = 0, start_logit = 0, end_logit = 0;

  bool is_null() const { return begin == 0 && end == 0; }
};

// The positions of the n highest, best first; of equal ones the last first.
std::vector<uint32_t> highest(std::span<const float> values, size_t n) {
  std::vector<uint32_t> order(values.size());
  std::iota(order.begin(), order.end(), 0u);
  n = std::min(n, order.size());
  std::partial_sort(order.begin(), order.begin() + static_cast<ptrdiff_t>(n), order.end(),
                    [&](uint32_t a, uint32_t b) { return values[a] != values[b] ? values[a] > values[b] : a > b; });
  order.resize(n);
  return order;
}

class Chooser {
 public:
  Chooser(const Example& example, const PostprocessOptions& options) : example_(example), options_(options) {}

  void add(const Feature& feature, const FeatureLogits& logits) {
    const Scored null = scored(logits, 0, 0);
    if (!null_ || null_->score > null.score) null_ = null;
    const auto n = static_cast<size_t>(options_.n_best_size);
    const std::vector<uint32_t> ends = highest(logits.end, n);
    for (const uint32_t start : highest(logits.start, n))
      for (const uint32_t end : ends) {
        if (!feature.is_context(start) || !feature.is_context(end)) continue;
        if (end < start || end - start + 1 > options_.max_answer_length) continue;
        Scored& one = scored_.emplace_back(scored(logits, start, end));
        one.begin = feature.span(start).begin;
        one.end = feature.span(end).end;
      }
  }

  Prediction choose() {
    Prediction prediction;
    prediction.id = example_.id;
    keep_best();
    std::vector<double> scores = fill_candidates(prediction.n_best);
    set_probabilities(prediction.n_best, scores);
    if (options_.version_2_with_negative) {
      choose_or_none(prediction);
    } else {
      prediction.text = prediction.n_best[0].text;
    }
    return prediction;
  }

 private:
  static Scored scored(const FeatureLogits& logits, size_t start, size_t end) {
    return {0, 0, logits.start[start] + logits.end[end], logits.start[start], logits.end[end]};
  }

  // The null answer, the least of all windows', stands for itself among the others, and is kept however low it is.
  void keep_best() {
    const bool with_null = options_.version_2_with_negative && null_.has_value();
    if (with_null) scored_.push_back(*null_);
    std::stable_sort(scored_.begin(), scored_.end(), [](const Scored& a, const Scored& b) { return a.score > b.score; });
    if (scored_.size() > static_cast<size_t>(options_.n_best_size))
      scored_.resize(static_cast<size_t>(options_.n_best_size));
    if (with_null && std::none_of(scored_.begin(), scored_.end(), [](const Scored& one) { return one.is_null(); }))
      scored_.push_back(*null_);
  }

  // Returns their scores. Where there is no answer but the empty one, "empty" is put before it.
  std::vector<double> fill_candidates(std::vector<Candidate>& candidates) const {
    std::vector<double> scores;
    for (const Scored& one : scored_) {
      candidates.push_back({example_.context->substr(one.begin, std::max(one.begin, one.end) - one.begin), one.start_logit,
                            one.end_logit, 0});
      scores.push_back(one.score);
    }
    const auto is_empty = [](const Candidate& one) { return one.text.empty(); };
    // Version 1.1 takes an empty text if it is one among several.
    if (std::all_of(candidates.begin(), candidates.end(), is_empty) &&
        (candidates.size() < 2 || options_.version_2_with_negative)) {
      candidates.insert(candidates.begin(), {.text = "empty", .is_placeholder = true});
      scores.insert(scores.begin(), 0);
    }
    return scores;
  }

  static void set_probabilities(std::vector<Candidate>& candidates, std::vector<double>& scores) {
    const double highest = *std::max_element(scores.begin(), scores.end());
    double sum = 0;
    for (double& score : scores) sum += score = std::exp(score - highest);
    for (size_t i = 0; i < scores.size(); ++i) candidates[i].probability = static_cast<float>(scores[i] / sum);
  }

  void choose_or_none(Prediction& prediction) const {
    const auto best = std::find_if(prediction.n_best.begin(), prediction.n_best.end(),
                                   [](const Candidate& one) { return !one.text.empty(); });
    prediction.null_odds = (null_ ? null_->score : 0) - best->start_logit - best->end_logit;
    if (prediction.null_odds <= static_cast<float>(options_.null_score_diff_threshold)) prediction.text = best->text;
  }

  const Example& example_;
  const PostprocessOptions& options_;
  std::optional<Scored> null_;
  std::vector<Scored> scored_;
};

void check(const Example& example, const Feature& feature, const FeatureLogits& logits) {
  if (logits.start.size() != feature.ids.size() || logits.end.size() != feature.ids.size())
    throw InvalidArgument(str("question ", example.id, ": ", logits.start.size(), " and ", logits.end.size(),
                              " logits for a feature of ", feature.ids.size(), " tokens"));
  for (const auto& values : {logits.start, logits.end})
    if (!std::all_of(values.begin(), values.end(), [](float value) { return std::isfinite(value); }))
      throw InvalidArgument(str("question ", example.id, ": a logit is not a finite number; the model has diverged"));
}

}  // namespace

std::vector<Candidate> answers_of(const Prediction& prediction) {
  std::vector<Candidate> answers = prediction.n_best;
  std::erase_if(answers, [](const Candidate& one) { return one.is_placeholder; });
  // With version 2.0's threshold the one that counts need not have the highest score.
  const auto chosen = std::ranges::find(answers, prediction.text, &Candidate::text);
  if (chosen != answers.end()) std::rotate(answers.begin(), chosen, chosen + 1);
  return answers;
}

std::vector<Prediction> postprocess(const std::vector<Example>& examples, const std::vector<Feature>& features,
                                    const std::vector<FeatureLogits>& logits, const PostprocessOptions& options) {
  if (features.size() != logits.size())
    throw InvalidArgument(str(logits.size(), " logits were given for ", features.size(), " features"));
  if (options.n_best_size < 1 || options.max_answer_length < 1)
    throw InvalidArgument(str("n_best_size is ", options.n_best_size, ", max_answer_length ", options.max_answer_length,
                              "; they are at least 1"));
  std::vector<std::vector<size_t>> of_example(examples.size());
  for (size_t i = 0; i < features.size(); ++i) {
    if (features[i].example >= examples.size())
      throw InvalidArgument(str("feature ", i, " is of example ", features[i].example, " of ", examples.size()));
    of_example[features[i].example].push_back(i);
  }

  std::vector<Prediction> predictions;
  predictions.reserve(examples.size());
  for (size_t i = 0; i < examples.size(); ++i) {
    Chooser chooser(examples[i], options);
    for (const size_t number : of_example[i]) {
      check(examples[i], features[number], logits[number]);
      chooser.add(features[number], logits[number]);
    }
    predictions.push_back(chooser.choose());
  }
  return predictions;
}

}  // namespace trireme::trainer
