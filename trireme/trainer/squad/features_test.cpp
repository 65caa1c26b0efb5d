#include "trireme/trainer/squad/features.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "trireme/trainer/squad/test_tokenizer.h"

namespace trireme::trainer {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

Example example(const std::string& question, const std::string& context, const std::string& answer = "") {
  Example one{"id of " + question, "", question, std::make_shared<const std::string>(context), {}};
  if (!answer.empty()) one.answers.push_back({answer, context.find(answer)});
  return one;
}

// "w0 w1 ... w<n-1>"
std::string words(int n) {
  std::string text;
  for (int i = 0; i < n; ++i) text += (i > 0 ? " w" : "w") + std::to_string(i);
  return text;
}

struct Case {
  WordTokenizer tokenizer;
  std::vector<Example> examples;
  std::vector<Feature> features;

  Case(std::vector<Example> given, FeatureOptions options, int threads = 1)
      : examples(std::move(given)), features(make_features(examples, tokenizer, options, threads)) {}

  // The words of the context that each feature holds.
  std::vector<std::string> windows() const {
    std::vector<std::string> texts;
    for (const Feature& feature : features)
      texts.push_back(
          feature.context_begin == feature.context_end ? "" : text(feature, feature.context_begin, feature.context_end - 1));
    return texts;
  }
  std::string text(const Feature& feature, size_t start, size_t end) const {
    const uint32_t begin = feature.span(start).begin;
    return examples[feature.example].context->substr(begin, feature.span(end).end - begin);
  }
};

TEST(Features, AFingerprintIsTheSameInEveryVersion) {
  // Checkpoints keep it as data_hash. Another value here needs another name there.
  Feature feature;
  feature.example = 3;
  feature.ids = {101, 7, 102, 2023, 102};
  feature.context_begin = 3;
  feature.context_end = 4;
  feature.start_position = feature.end_position = 3;
  EXPECT_EQ(fingerprint(std::vector<Feature>{feature, feature}), 0x61192904465267cc);
}

TEST(Features, AShortContextGivesOne) {
  const Case one({example(" \u00a0who is", words(3))}, {.max_length = 8});
  ASSERT_EQ(one.features.size(), 1u);
  const Feature& feature = one.features[0];
  EXPECT_EQ(feature.ids.size(), 8u);
  EXPECT_EQ(feature.ids[0], 0);
  EXPECT_EQ(feature.ids[3], 1);
  EXPECT_EQ(feature.ids[7], 1);
  EXPECT_EQ(feature.context_begin, 4u);
  EXPECT_EQ(feature.context_end, 7u);
  EXPECT_THAT(type_ids(feature, one.tokenizer.pair_template()), ElementsAre(0, 0, 0, 0, 1, 1, 1, 1));
  EXPECT_THAT(one.windows(), ElementsAre("w0 w1 w2"));
}

TEST(Features, AReservedPartHasItsOwnType) {
  WordTokenizer tokenizer;
  const Case one({example("q", "c c")}, {});
  PairTemplate pair = tokenizer.pair_template();
  pair.before_type = 7, pair.between_type = 8, pair.after_type = 9;
  EXPECT_THAT(type_ids(one.features[0], pair), ElementsAre(7, 0, 8, 1, 1, 9));
}

// 8 tokens with 3 around and 1 of the question leave 4. These are the windows of Hugging Face's fast tokenizers: the last
// one holds what is left, and there is none that would hold only what the one before has.
TEST(Features, LongContextsGiveWindowsThatOverlap) {
  EXPECT_THAT(Case({example("q", words(4))}, {8, 1}).windows(), ElementsAre("w0 w1 w2 w3"));
  EXPECT_THAT(Case({example("q", words(5))}, {8, 1}).windows(), ElementsAre("w0 w1 w2 w3", "w3 w4"));
  EXPECT_THAT(Case({example("q", words(7))}, {8, 1}).windows(), ElementsAre("w0 w1 w2 w3", "w3 w4 w5 w6"));
  EXPECT_THAT(Case({example("q", words(8))}, {8, 1}).windows(), ElementsAre("w0 w1 w2 w3", "w3 w4 w5 w6", "w6 w7"));
  EXPECT_THAT(Case({example("q", words(6))}, {8, 3}).windows(), ElementsAre("w0 w1 w2 w3", "w1 w2 w3 w4", "w2 w3 w4 w5"));
  EXPECT_THAT(Case({example("q", words(6))}, {8, 0}).windows(), ElementsAre("w0 w1 w2 w3", "w4 w5"));
}

TEST(Features, QuestionsThatLeaveNoRoomAreNamed) {
  const auto make = [](int question, int context, FeatureOptions options) {
    return Case({example(words(question), words(context))}, options).features.size();
  };
  EXPECT_EQ(make(3, 2, {8, 2}), 1u) << "the stride does not matter to a context that fits";
  EXPECT_EQ(make(5, 0, {8, 2}), 1u);
  EXPECT_THAT(
      [&] {
        make(2, 9, {8, 3});
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("question id of w0 w1 has 2 tokens. Of 8 there remain 3")));
  EXPECT_THAT([&] { make(5, 1, {8, 0}); }, ThrowsMessage<InvalidArgument>(HasSubstr("there remain 0 for its context of 1")));
  EXPECT_THAT([&] { make(9, 1, {8, 0}); }, ThrowsMessage<InvalidArgument>(HasSubstr("there remain 0 for its context of 1")));
  EXPECT_THROW(make(1, 1, {8, -1}), InvalidArgument);
  EXPECT_THROW(make(1, 1, {0, 0}), InvalidArgument);
}

TEST(Features, LabelsAreTheTokensThatCoverTheAnswer) {
  const FeatureOptions options{.max_length = 16, .doc_stride = 1, .with_labels = true};
  const auto label = [&](const std::string& answer) {
    const Case one({example("q", "alpha beta gamma delta", answer)}, options);
    const Feature& feature = one.features.at(0);
    return one.text(feature, static_cast<size_t>(feature.start_position), static_cast<size_t>(feature.end_position));
  };
  EXPECT_EQ(label("beta"), "beta");
  EXPECT_EQ(label("beta gamma"), "beta gamma");
  EXPECT_EQ(label("alpha"), "alpha");
  EXPECT_EQ(label("gamma delta"), "gamma delta");
  EXPECT_EQ(label("et"), "beta") << "part of a token";
  EXPECT_EQ(label("mma de"), "gamma delta");
  EXPECT_EQ(label("alpha beta gamma delta"), "alpha beta gamma delta");
}

// run_qa.py's search for the start runs over the end of the context, where offsets are 0, to the last token.
TEST(Features, AnAnswerThatIsTheLastTokenStartsBehindTheContext) {
  const Case one({example("q", "alpha beta", "beta")}, {.with_labels = true});
  EXPECT_EQ(one.features.at(0).ids.size(), 6u);
  EXPECT_EQ(one.features.at(0).start_position, 5);
  EXPECT_EQ(one.features.at(0).end_position, 4);
}

TEST(Features, AnswersOutsideOfAWindowAreLabelledWithTheClsToken) {
  const Case one({example("q", words(8), "w3 w4"), example("q", words(8))},
                 {.max_length = 8, .doc_stride = 1, .with_labels = true});
  ASSERT_THAT(one.windows(), ElementsAre("w0 w1 w2 w3", "w3 w4 w5 w6", "w6 w7", "w0 w1 w2 w3", "w3 w4 w5 w6", "w6 w7"));
  std::vector<std::pair<int, int>> labels;
  for (const Feature& feature : one.features) labels.emplace_back(feature.start_position, feature.end_position);
  EXPECT_THAT(labels, ElementsAre(std::pair(0, 0), std::pair(3, 4), std::pair(0, 0), std::pair(0, 0), std::pair(0, 0),
                                  std::pair(0, 0)));
}

TEST(Features, AContextWithoutTokensHasNoAnswer) {
  EXPECT_EQ(Case({example("q", " ")}, {.with_labels = true}).features.at(0).start_position, 0);
  EXPECT_THAT([] { Case({example("q", "  ", " ")}, {.with_labels = true}); },
              ThrowsMessage<InvalidArgument>(HasSubstr("question id of q has an answer, but its context has no tokens")));
}

std::vector<Example> many_examples() {
  std::vector<Example> examples;
  for (int i = 0; i < 300; ++i) {
    examples.push_back(example("what is number " + std::to_string(i), words(1 + i % 37) + " last " + std::to_string(i / 3)));
    if (i % 3 != 0) examples.back().context = examples[static_cast<size_t>(i - i % 3)].context;
  }
  return examples;
}

TEST(Features, AnyNumberOfThreadsGivesTheSame) {
  // The ids must not depend on the order in which threads meet new words.
  const std::vector<Example> examples = many_examples();
  WordTokenizer tokenizer;
  const FeatureOptions options{.max_length = 16, .doc_stride = 2};
  const std::vector<Feature> once = make_features(examples, tokenizer, options, 1);
  for (const int threads : {1, 2, 5, 64}) {
    const std::vector<Feature> again = make_features(examples, tokenizer, options, threads);
    ASSERT_EQ(again.size(), once.size());
    EXPECT_EQ(fingerprint(again), fingerprint(once)) << threads;
    for (size_t i = 0; i < once.size(); ++i) ASSERT_EQ(again[i].ids, once[i].ids);
  }
}

TEST(Features, EachContextIsTokenisedOnce) {
  const Case one(many_examples(), {}, 3);
  for (const Example& example : one.examples) {
    EXPECT_EQ(one.tokenizer.encoded().at(*example.context), 1);
    EXPECT_EQ(one.features[0].context, one.features[1].context);
  }
}

// The first in order, which here is the last in time: it waits until a later one has failed.
TEST(Features, TheFirstFailureIsTheOneReported) {
  std::vector<Example> examples = many_examples();
  for (const size_t i : {3, 40, 150, 299}) examples[i].question = "BAD " + std::to_string(i);
  WordTokenizer tokenizer;
  std::atomic<bool> later_failed{false};
  tokenizer.before_encoding = [&](std::string_view text) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (text == "BAD 3" && !later_failed && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
    if (text == "BAD 3") std::this_thread::sleep_for(std::chrono::milliseconds(20));
    if (text == "BAD 40") later_failed = true;
  };
  EXPECT_THAT([&] { make_features(examples, tokenizer, {}, 4); }, ThrowsMessage<InvalidArgument>("tokenizer: BAD 3"));
  EXPECT_TRUE(later_failed);
}

TEST(Features, NoMoreThanAskedFor) {
  EXPECT_EQ(Case({example("q", words(8))}, {.max_length = 8, .doc_stride = 1, .max_features = 2}).features.size(), 2u);
  EXPECT_EQ(Case({example("q", words(8))}, {.max_length = 8, .doc_stride = 1, .max_features = 9}).features.size(), 3u);
  EXPECT_EQ(Case({}, {}).features.size(), 0u);
}

TEST(Features, TheFingerprintSeesLabelsAndTokens) {
  Case one({example("q", words(3), "w1")}, {.with_labels = true});
  const uint64_t before = fingerprint(one.features);
  ++one.features[0].end_position;
  EXPECT_NE(fingerprint(one.features), before);
  --one.features[0].end_position;
  EXPECT_EQ(fingerprint(one.features), before);
  ++one.features[0].ids[1];
  EXPECT_NE(fingerprint(one.features), before);
}

}  // namespace
}  // namespace trireme::trainer
