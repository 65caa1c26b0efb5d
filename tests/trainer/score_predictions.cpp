// Prints what the trainer's metrics say, as JSON.
//   score_predictions 1.1|2.0 QUESTIONS PREDICTIONS    the scores; PREDICTIONS is {"<id>": text, ...}
//   score_predictions words STRINGS                    the normalized words of each of an array of strings
#include <iostream>
#include <string>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/trainer/json/json.h"
#include "trireme/trainer/squad/examples.h"
#include "trireme/trainer/squad/metrics.h"

using namespace trireme;
using namespace trireme::trainer;

static Json words_of(const std::string& strings) {
  Json words = Json::array();
  for (const Json& text : read_json(strings)) words.push_back(normalized_words(text.get_ref<const std::string&>()));
  return words;
}

static Json scores(const std::vector<std::string>& arguments) {
  const std::vector<Example> examples = read_squad(arguments[1], {});
  std::vector<Prediction> predictions;
  const Json answers = read_json(arguments[2]);
  for (const auto& [id, text] : answers.items()) {
    Prediction& one = predictions.emplace_back();
    one.id = id;
    one.text = text.get_ref<const std::string&>();
  }
  return arguments[0] == "2.0" ? squad_v2_metrics(examples, predictions) : squad_v1_metrics(examples, predictions);
}

int main(int count, char** words) {
  const std::vector<std::string> arguments(words + 1, words + count);
  try {
    if (arguments.size() == 2 && arguments[0] == "words") {
      std::cout << words_of(arguments[1]) << '\n';
    } else if (arguments.size() == 3) {
      std::cout << scores(arguments) << '\n';
    } else {
      std::cerr << "see the head of score_predictions.cpp\n";
      return 2;
    }
  } catch (const Error& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
