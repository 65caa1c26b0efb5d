#include "trireme/trainer/squad/prediction_files.h"

#include <functional>
#include <sstream>

#include "trireme/trainer/files/files.h"
#include "trireme/trainer/json/json.h"
#include "trireme/trainer/squad/python_text.h"

namespace trireme::trainer {
namespace {

using WriteValue = std::function<void(std::ostream&, const Prediction&)>;

// {"<id>": <value>, ...}
void write_by_id(const std::filesystem::path& path, const std::vector<Prediction>& predictions, const WriteValue& value) {
  std::ostringstream file;
  file << '{';
  const char* separator = "\n";
  for (const Prediction& prediction : predictions) {
    file << separator << "    " << python_json_string(prediction.id) << ": ";
    value(file, prediction);
    separator = ",\n";
  }
  file << (predictions.empty() ? "}\n" : "\n}\n");
  write_file_atomically(path, file.view());
}

void write_candidates(std::ostream& out, const Prediction& prediction) {
  out << '[';
  const char* separator = "\n";
  for (const Candidate& one : prediction.n_best) {
    out << separator << "        {\n            \"start_logit\": " << python_repr(one.start_logit)
        << ",\n            \"end_logit\": " << python_repr(one.end_logit)
        << ",\n            \"text\": " << python_json_string(one.text)
        << ",\n            \"probability\": " << python_repr(one.probability) << "\n        }";
    separator = ",\n";
  }
  out << (prediction.n_best.empty() ? "]" : "\n    ]");
}

}  // namespace

void write_predictions(const std::filesystem::path& folder, const std::string& prefix,
                       const std::vector<Prediction>& predictions, bool version_2_with_negative) {
  write_by_id(folder / (prefix + "_predictions.json"), predictions,
              [](std::ostream& out, const Prediction& one) { out << python_json_string(one.text); });
  write_by_id(folder / (prefix + "_nbest_predictions.json"), predictions, write_candidates);
  if (version_2_with_negative)
    write_by_id(folder / (prefix + "_null_odds.json"), predictions,
                [](std::ostream& out, const Prediction& one) { out << python_repr(one.null_odds); });
}

}  // namespace trireme::trainer
