#include "trireme/trainer/squad/postprocess.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "trireme/trainer/squad/test_tokenizer.h"

namespace trireme::trainer {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

// One question of one token, so that the context begins at position 3. Its logits are given for the context and the CLS
// token; everywhere else they are lower than any of these.
class Asked {
 public:
  explicit Asked(const std::string& context, FeatureOptions options = {}) {
    examples_ = {{"1", "", "q", std::make_shared<const std::string>(context), {}}};
    features_ = make_features(examples_, WordTokenizer(), options, 1);
    for (const Feature& feature : features_) {
      start_.emplace_back(feature.ids.size(), -50.f);
      end_.emplace_back(feature.ids.size(), -50.f);
    }
  }
  Asked& logits(size_t feature, const std::vector<float>& start, const std::vector<float>& end, float cls_start = -40,
                float cls_end = -40) {
    std::copy(start.begin(), start.end(), start_[feature].begin() + 3);
    std::copy(end.begin(), end.end(), end_[feature].begin() + 3);
    start_[feature][0] = cls_start;
    end_[feature][0] = cls_end;
    return *this;
  }
  std::vector<float>& start(size_t feature) { return start_[feature]; }
  size_t features() const { return features_.size(); }
  void drop_features() { features_.clear(), start_.clear(), end_.clear(); }
  Prediction answer(PostprocessOptions options = {}) const {
    std::vector<FeatureLogits> logits;
    for (size_t i = 0; i < start_.size(); ++i) logits.push_back({start_[i], end_[i]});
    return postprocess(examples_, features_, logits, options).at(0);
  }

 private:
  std::vector<Example> examples_;
  std::vector<Feature> features_;
  std::vector<std::vector<float>> start_, end_;
};

std::vector<std::string> texts(const Prediction& prediction) {
  std::vector<std::string> all;
  for (const Candidate& one : prediction.n_best) all.push_back(one.text);
  return all;
}

TEST(Postprocess, TheBestSpanWins) {
  const Prediction best = Asked("é b c").logits(0, {1, 3, 0.5f}, {0, 2, 4}).answer();
  EXPECT_EQ(best.text, "b c");
  EXPECT_THAT(texts(best), ElementsAre("b c", "b", "é b c", "c", "é b", "é"));
  EXPECT_EQ(best.n_best[0].start_logit, 3);
  EXPECT_EQ(best.n_best[0].end_logit, 4);
  double sum = 0;
  for (const Candidate& one : best.n_best) sum += one.probability;
  EXPECT_NEAR(sum, 1, 1e-6);
  EXPECT_NEAR(best.n_best[0].probability / best.n_best[1].probability, std::exp(2), 1e-4);
}

TEST(Postprocess, AnswersEndAfterTheyStartAndAreNotTooLong) {
  const Asked asked = Asked("a b c").logits(0, {1, 2, 9}, {9, 2, 1});
  EXPECT_THAT(texts(asked.answer()), ElementsAre("c", "a", "b", "b c", "a b", "a b c")) << "equal ones by their start";
  EXPECT_THAT(texts(asked.answer({.max_answer_length = 1})), ElementsAre("c", "a", "b"));
}

TEST(Postprocess, NBestLimitsPositionsAndAnswers) {
  const Asked asked = Asked("a b c").logits(0, {1, 2, 3}, {1, 2, 3});
  EXPECT_THAT(texts(asked.answer({.n_best_size = 1})), ElementsAre("c"));
  EXPECT_THAT(texts(asked.answer({.n_best_size = 2})), ElementsAre("c", "b c"));
}

TEST(Postprocess, OfEqualLogitsTheLastComesFirst) {
  EXPECT_EQ(Asked("a b c").logits(0, {1, 1, 1}, {1, 1, 1}).answer({.n_best_size = 1}).text, "c");
}

TEST(Postprocess, TheBestOfAllWindowsWins) {
  Asked asked("a b c d e f", {.max_length = 8, .doc_stride = 2});
  ASSERT_EQ(asked.features(), 2u);
  asked.logits(0, {1, 2, 3, 4}, {1, 2, 3, 4}).logits(1, {1, 2, 3, 5}, {1, 2, 3, 5});
  EXPECT_EQ(asked.answer().text, "f");
}

TEST(Postprocess, NoCandidateIsEmpty) {
  // The highest positions are the CLS token and the question.
  Asked asked("a b");
  asked.start(0)[0] = asked.start(0)[1] = 60;
  const Prediction none = asked.answer({.n_best_size = 2});
  EXPECT_EQ(none.text, "empty");
  EXPECT_THAT(texts(none), ElementsAre("empty"));
  EXPECT_EQ(none.n_best[0].probability, 1);
  const Prediction null = asked.answer({.version_2_with_negative = true, .n_best_size = 2});
  EXPECT_THAT(texts(null), ElementsAre("empty", ""));
  EXPECT_EQ(null.null_odds, 10);
  EXPECT_EQ(null.text, "");
}

TEST(Postprocess, ExamplesWithoutFeaturesAreEmpty) {
  Asked asked("a b");
  asked.drop_features();
  EXPECT_EQ(asked.answer().text, "empty");
  EXPECT_EQ(asked.answer({.version_2_with_negative = true}).text, "empty");
  EXPECT_EQ(asked.answer({.version_2_with_negative = true}).null_odds, 0);
}

TEST(Postprocess, TheNullAnswerWinsAboveTheThreshold) {
  const Asked asked = Asked("a b").logits(0, {4, 1}, {5, 1}, 6, 4);
  const Prediction null = asked.answer({.version_2_with_negative = true});
  EXPECT_EQ(null.null_odds, 1);
  EXPECT_EQ(null.text, "");
  EXPECT_EQ(texts(null)[0], "");
  EXPECT_EQ(asked.answer({.version_2_with_negative = true, .null_score_diff_threshold = 1}).text, "a");
  EXPECT_EQ(asked.answer().text, "a") << "version 1.1 has no null answer";
}

TEST(Postprocess, TheNullAnswerIsKeptHoweverLow) {
  const Prediction best =
      Asked("a b").logits(0, {4, 3}, {5, 4}, -7, -8).answer({.version_2_with_negative = true, .n_best_size = 2});
  EXPECT_THAT(texts(best), ElementsAre("a", "a b", ""));
  EXPECT_EQ(best.null_odds, -24);
}

TEST(Postprocess, TheNullScoreIsTheLeastOfAllWindows) {
  Asked asked("a b c d e f", {.max_length = 8, .doc_stride = 2});
  asked.logits(0, {9, 0, 0, 0}, {9, 0, 0, 0}, 10, 10).logits(1, {0, 0, 0, 0}, {0, 0, 0, 0}, 1, 2);
  EXPECT_EQ(asked.answer({.version_2_with_negative = true}).null_odds, 3 - 18);
}

TEST(Postprocess, MismatchesAreRefused) {
  Asked asked("a b");
  asked.start(0)[2] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT([&] { asked.answer(); },
              ThrowsMessage<InvalidArgument>(HasSubstr("question 1: a logit is not a finite number")));
  asked.start(0).pop_back();
  EXPECT_THAT([&] { asked.answer(); },
              ThrowsMessage<InvalidArgument>(HasSubstr("question 1: 5 and 6 logits for a feature of 6 tokens")));
  EXPECT_THROW(Asked("a").answer({.n_best_size = 0}), InvalidArgument);
  EXPECT_THROW(Asked("a").answer({.max_answer_length = 0}), InvalidArgument);
  Feature stray;
  stray.example = 1;
  EXPECT_THROW(postprocess({Example{}}, {stray}, {FeatureLogits{}}, {}), InvalidArgument);
  EXPECT_THROW(postprocess({Example{}}, {}, {FeatureLogits{}}, {}), InvalidArgument);
}

std::vector<std::string> texts(const std::vector<Candidate>& candidates) {
  Prediction prediction;
  prediction.n_best = candidates;
  return texts(prediction);
}

TEST(Postprocess, WhatIsShownBeginsWithWhatWasChosen) {
  const Asked asked = Asked("a b").logits(0, {5, 0}, {5, -60}, 1, 1);
  for (const auto& [threshold, first] :
       {std::pair<double, std::string>(-100, ""), std::pair<double, std::string>(100, "a")}) {
    const Prediction prediction =
        asked.answer({.version_2_with_negative = true, .n_best_size = 2, .null_score_diff_threshold = threshold});
    const std::vector<Candidate> answers = answers_of(prediction);
    ASSERT_EQ(answers.size(), prediction.n_best.size()) << "none is lost";
    EXPECT_EQ(answers[0].text, first);
    EXPECT_EQ(prediction.text, first);
    for (const Candidate& one : answers)
      EXPECT_EQ(one.start_logit + one.end_logit, one.text.empty() ? 2 : 10) << "each with its own score";
  }
}

TEST(Postprocess, AnAnswerThatIsNoneIsNotShown) {
  Asked asked("a b");
  asked.drop_features();
  EXPECT_THAT(texts(asked.answer()), ElementsAre("empty")) << "as run_qa.py writes it";
  EXPECT_TRUE(answers_of(asked.answer()).empty());
  EXPECT_THAT(texts(answers_of(Asked("empty b").logits(0, {5, 0}, {5, -60}).answer({.n_best_size = 1}))),
              ElementsAre("empty"))
      << "a text may say so";
}

}  // namespace
}  // namespace trireme::trainer
