// From logits to answers, as run_qa.py's postprocess_qa_predictions chooses them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "trireme/trainer/squad/examples.h"
#include "trireme/trainer/squad/features.h"

namespace trireme::trainer {

struct PostprocessOptions {
  bool version_2_with_negative = false;
  int64_t n_best_size = 20;
  int64_t max_answer_length = 30;  // tokens
  double null_score_diff_threshold = 0;
};

// What the model says of one feature: one number for each of its ids.
struct FeatureLogits {
  std::span<const float> start, end;
};

struct Candidate {
  std::string text;
  float start_logit = 0, end_logit = 0;
  float probability = 0;        // among the candidates of its question
  bool is_placeholder = false;  // run_qa.py's "empty", where there is no answer
};

struct Prediction {
  std::string id, text;
  std::vector<Candidate> n_best;  // best first
  float null_odds = 0;            // how far the null answer's score is above the best other one's; version 2.0 only
};

// One for each example, in their order. `logits` belong to `features`, number for number, in any order of examples.
//
// Of equal logits those further back come first, as from a stable argsort, reversed. (numpy's is not stable: with equal
// logits at the edge of the n best, run_qa.py's choice depends on the CPU.) Logits of padding do not exist here; under
// --pad_to_max_length run_qa.py has them, and though they give no answers they can take places among the n best positions.
//
// An example without a feature (--max_eval_samples can cut them off) gets the answer "empty" like one without a candidate;
// its null score counts as 0 (run_qa.py takes the one of the example before).
//
// InvalidArgument if numbers do not match or a logit is not finite: answers of a model that has diverged mean nothing.
std::vector<Prediction> postprocess(const std::vector<Example>& examples, const std::vector<Feature>& features,
                                    const std::vector<FeatureLogits>& logits, const PostprocessOptions& options);

// For people: what was chosen comes first, the other candidates follow, best first; each has its own numbers. An empty text
// is "no answer". A question that has no candidate but the placeholder has none.
std::vector<Candidate> answers_of(const Prediction& prediction);

}  // namespace trireme::trainer
