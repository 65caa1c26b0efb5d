#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/trainer/tokenizer/test_tokenizers.h"

namespace trireme::trainer {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

TEST(Unigram, TakesTheBestSum) {
  const Pipeline pipeline = pipeline_of(xlm_roberta_json());
  EXPECT_THAT(tokens_of(pipeline, "ab"), ElementsAre("\u2581ab[0,2]"));                      // -6.5 and not -2 - 5
  EXPECT_THAT(tokens_of(pipeline, "bab"), ElementsAre("\u2581[0,1]", "ba[0,2]", "b[2,3]"));  // -4 - 3 and not -3 - 5
}

// The three sums are equal but for rounding; which is best is found by the scores that Hugging Face's tokenizers reads.
TEST(Unigram, OfEqualSumsTakesTheOneThatHuggingFaceTakes) {
  const auto cut = [](double one, double two) {
    Json json = xlm_roberta_json();
    json["pre_tokenizer"] = nullptr;
    json["model"]["vocab"] = Json::parse(R"([["<unk>", 0.0], ["<s>", 0.0], ["<pad>", 0.0], ["</s>", 0.0]])");
    json["model"]["vocab"].push_back({"a", one});
    json["model"]["vocab"].push_back({"aa", two});
    return tokens_of(pipeline_of(json), "aaaaaaa");
  };
  EXPECT_THAT(cut(-7.3865571047614695, -2.523634577631987), ElementsAre("aa[0,2]", "aa[2,4]", "a[4,5]", "aa[5,7]"));
  EXPECT_THAT(cut(-7.327241414687133, -2.8067842948515134), ElementsAre("aa[0,2]", "aa[2,4]", "aa[4,6]", "a[6,7]"));
  EXPECT_THAT(cut(-7.5442254141821845, -2.834333405650762), ElementsAre("aa[0,2]", "aa[2,4]", "a[4,5]", "aa[5,7]"));
}

TEST(Unigram, NeighboursThatAreUnknownAreOneToken) {
  const Pipeline pipeline = pipeline_of(xlm_roberta_json());
  EXPECT_THAT(tokens_of(pipeline, "xy\u00E9a z"),
              ElementsAre("\u2581[0,1]", "<unk>[0,4]", "a[4,5]", "\u2581[5,6]", "<unk>[6,7]"));
}

TEST(Unigram, WithoutATokenForTheUnknownSaysSo) {
  Json json = xlm_roberta_json();
  json["model"].erase("unk_id");
  EXPECT_THAT([&] { pipeline_of(json).encode("x"); }, ThrowsMessage<InvalidArgument>(HasSubstr("test.json.model: ")));
}

TEST(Unigram, AWordOfMegabytesIsCutInTime) {
  const std::string text(size_t{2} << 20, 'a');
  EXPECT_EQ(pipeline_of(xlm_roberta_json()).encode(text).ids.size(), text.size() + 1);
}

}  // namespace
}  // namespace trireme::trainer
