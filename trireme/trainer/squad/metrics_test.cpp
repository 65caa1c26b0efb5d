#include "trireme/trainer/squad/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"

namespace trireme::trainer {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::ThrowsMessage;

Example question(const std::string& id, const std::vector<std::string>& answers) {
  Example example{id, "", "", nullptr, {}};
  for (const std::string& answer : answers) example.answers.push_back({answer, 0});
  return example;
}

Prediction prediction(const std::string& id, const std::string& text) {
  Prediction one;
  one.id = id;
  one.text = text;
  return one;
}

TEST(Metrics, WordsAreComparedWithoutCasePunctuationAndArticles) {
  EXPECT_THAT(normalized_words("The  Cat, sat on a\tMAT!"), ElementsAre("cat", "sat", "on", "mat"));
  EXPECT_THAT(normalized_words("The a an"), IsEmpty());
  EXPECT_THAT(normalized_words("then Anna theatre"), ElementsAre("then", "anna", "theatre"));
  EXPECT_THAT(normalized_words("co-op U.S."), ElementsAre("coop", "us"));
  EXPECT_THAT(normalized_words("a-the"), ElementsAre("athe")) << "punctuation goes before articles";
  EXPECT_THAT(normalized_words("$5 _a_"), ElementsAre("5")) << "the underscore is punctuation";
  EXPECT_THAT(normalized_words("“the” ÉCOLE\u00a0x"), ElementsAre("“", "”", "école", "x"));
  EXPECT_THAT(normalized_words("aé a\u0301 a²"), ElementsAre("aé", "\u0301", "a²")) << "a mark ends a word";
}

TEST(Metrics, Version1TakesTheBestOfTheAnswers) {
  const std::vector<Example> examples = {question("1", {"the Nile", "River Nile delta"}), question("2", {"x y"}),
                                         question("3", {"z"})};
  const Json metrics = squad_v1_metrics(examples, {prediction("1", "nile"), prediction("2", "y y z")});
  EXPECT_THAT(metrics.dump(), HasSubstr("{\"exact_match\":"));
  EXPECT_NEAR(metrics["exact_match"].get<double>(), 100.0 / 3, 1e-12);
  // 1; precision 1/3 and recall 1/2; a question without a prediction.
  EXPECT_NEAR(metrics["f1"].get<double>(), 100 * (1 + 0.4) / 3, 1e-12);
}

TEST(Metrics, Version1GivesNoF1ForNothing) {
  const Json metrics = squad_v1_metrics({question("1", {"the"})}, {prediction("1", "a")});
  EXPECT_EQ(metrics["exact_match"], 100);
  EXPECT_EQ(metrics["f1"], 0);
  EXPECT_THAT([] { squad_v1_metrics({question("1", {})}, {}); },
              ThrowsMessage<InvalidArgument>(HasSubstr("question 1 has no answer")));
  EXPECT_THROW(squad_v1_metrics({}, {}), InvalidArgument);
}

TEST(Metrics, Version2CountsThoseWithAndWithoutAnswer) {
  const std::vector<Example> examples = {question("1", {"x y"}), question("2", {}), question("3", {}),
                                         question("4", {"the"})};
  const Json metrics =
      squad_v2_metrics(examples, {prediction("1", "x"), prediction("2", ""), prediction("3", "no"), prediction("4", "a")});
  EXPECT_NEAR(metrics["exact"].get<double>(), 50, 1e-12);
  EXPECT_NEAR(metrics["f1"].get<double>(), 100 * (2.0 / 3 + 2) / 4, 1e-12);
  EXPECT_EQ(metrics["total"], 4);
  EXPECT_NEAR(metrics["HasAns_exact"].get<double>(), 50, 1e-12);
  EXPECT_EQ(metrics["HasAns_total"], 2);
  EXPECT_NEAR(metrics["NoAns_f1"].get<double>(), 50, 1e-12);
  EXPECT_TRUE(metrics["NoAns_total"].is_number_integer());
  std::vector<std::string> names;
  for (const auto& [name, value] : metrics.items()) names.push_back(name);
  EXPECT_THAT(names, ElementsAre("exact", "f1", "total", "HasAns_exact", "HasAns_f1", "HasAns_total", "NoAns_exact",
                                 "NoAns_f1", "NoAns_total", "best_exact", "best_exact_thresh", "best_f1", "best_f1_thresh"));
}

TEST(Metrics, Version2FindsTheBestBeginningOfThePredictions) {
  const std::vector<Example> examples = {question("1", {"x"}), question("2", {}), question("3", {"y"}), question("4", {}),
                                         question("5", {})};
  const std::vector<Prediction> predictions = {prediction("5", ""), prediction("1", "x"), prediction("2", "no"),
                                               prediction("3", "y"), prediction("4", "no")};
  const Json metrics = squad_v2_metrics(examples, predictions);
  // Three right without answering; 5 changes nothing, 1 makes four, 2 takes one away, 3 brings it back.
  EXPECT_EQ(metrics["best_exact"], 80);
  EXPECT_EQ(metrics["best_exact_thresh"], 0);
  EXPECT_EQ(metrics["exact"], 60);
}

TEST(Metrics, Version2LeavesOutWhatIsNotThere) {
  const Json metrics = squad_v2_metrics({question("1", {"x"})}, {prediction("1", "x")});
  EXPECT_FALSE(metrics.contains("NoAns_total"));
  EXPECT_EQ(metrics["best_exact"], 100);
  EXPECT_THAT([] { squad_v2_metrics({question("1", {"x"})}, {prediction("2", "x")}); },
              ThrowsMessage<InvalidArgument>(HasSubstr("no prediction for question 1")));
  EXPECT_THROW(squad_v2_metrics({}, {}), InvalidArgument);
}

}  // namespace
}  // namespace trireme::trainer
