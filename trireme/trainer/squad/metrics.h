// Exact match and F1 as SQuAD's official scripts compute them, under the names that run_qa.py reports.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "trireme/trainer/json/json.h"
#include "trireme/trainer/squad/examples.h"
#include "trireme/trainer/squad/postprocess.h"

namespace trireme::trainer {

// Lower case, without punctuation and articles: the words by which answers are compared.
std::vector<std::string> normalized_words(std::string_view answer);

// {"exact_match": ..., "f1": ...} in per cent. A question without a prediction counts as wrong; one without an answer is
// InvalidArgument.
Json squad_v1_metrics(const std::vector<Example>& examples, const std::vector<Prediction>& predictions);

// exact, f1 and total, of all, of those with an answer (HasAns_...) and of those without (NoAns_...), as far as there are
// any; and best_exact, best_exact_thresh, best_f1, best_f1_thresh: the best scores that a beginning of the predictions has
// where the rest counts as no answer, and 0 (run_qa.py hands in no probability to find a threshold by). InvalidArgument
// where a question has no prediction.
Json squad_v2_metrics(const std::vector<Example>& examples, const std::vector<Prediction>& predictions);

}  // namespace trireme::trainer
