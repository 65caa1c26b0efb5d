// What is wrong in a tokenizer.json is said with the file and the place, and ends nothing.
#include "trireme/trainer/tokenizer/tokenizer_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/trainer/tokenizer/base64.h"
#include "trireme/trainer/tokenizer/test_tokenizers.h"

namespace trireme::trainer {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

// `change` makes `json` wrong; the complaint says `where` in test.json and `what`.
template <class ChangeJson>
void expect_refused(Json json, const ChangeJson& change, const std::string& where, const std::string& what) {
  change(json);
  EXPECT_THAT([&] { pipeline_of(json).encode("ab x\u00E9"); },
              ThrowsMessage<InvalidArgument>(AllOf(HasSubstr("test.json" + where), HasSubstr(what))))
      << json.dump();
}

TEST(TokenizerJson, UnknownComponentsAreNamed) {
  expect_refused(
      bert_json(), [](Json& j) { j["normalizer"]["type"] = "Nonsense"; }, ".normalizer: ", "\"Nonsense\" is not");
  expect_refused(
      bert_json(), [](Json& j) { j["pre_tokenizer"]["type"] = "Split"; }, ".pre_tokenizer: ", "\"Split\" is not");
  expect_refused(
      bert_json(), [](Json& j) { j["model"]["type"] = "WordLevel"; }, ".model: ", "\"WordLevel\" is not");
  expect_refused(
      roberta_json(), [](Json& j) { j["post_processor"]["type"] = "X"; }, ".post_processor: ", "\"X\" is not");
  expect_refused(
      bert_json(), [](Json& j) { j["version"] = "2.0"; }, ".version: ", "1.0");
  expect_refused(
      bert_json(),
      [](Json& j) {
        j["normalizer"] = {{"type", "Replace"}, {"content", ""}, {"pattern", {{"Regex", "a+"}}}};
      },
      ".normalizer.pattern: ", "\"a+\" is not supported");
}

TEST(TokenizerJson, MissingFieldsAreNamed) {
  for (const char* field : {"unk_token", "continuing_subword_prefix", "max_input_chars_per_word", "vocab"}) {
    expect_refused(
        bert_json(), [&](Json& j) { j["model"].erase(field); }, ".model: ", field);
  }
  expect_refused(
      bert_json(), [](Json& j) { j.erase("model"); }, ": ", "\"model\" is missing");
  expect_refused(
      bert_json(), [](Json& j) { j["normalizer"].erase("lowercase"); }, ".normalizer: ", "lowercase");
  expect_refused(
      bert_json(), [](Json& j) { j["added_tokens"][1].erase("lstrip"); }, ".added_tokens[1]: ", "lstrip");
  expect_refused(
      bert_json(), [](Json& j) { j["model"]["max_input_chars_per_word"] = -1; },
      ".model.max_input_chars_per_word: ", "negative");
  expect_refused(
      roberta_json(), [](Json& j) { j["post_processor"]["sep"] = 3; }, ".post_processor.sep: ", "array");
}

TEST(TokenizerJson, IdsAreChecked) {
  const auto set = [](const char* token, const Json& id) { return [=](Json& j) { j["model"]["vocab"][token] = id; }; };
  expect_refused(bert_json(), set("new", 3), ".model.vocab: ", "share the id 3");
  expect_refused(bert_json(), set("new", -1), ".model.vocab: ", "\"new\" has the id -1");
  expect_refused(bert_json(), set("new", int64_t{1} << 31), ".model.vocab: ", "no 32-bit number");
  expect_refused(bert_json(), set("new", ~uint64_t{0}), ".model.vocab: token \"new\"", "above 2^63");
  expect_refused(bert_json(), set("new", "4"), ".model.vocab: token \"new\"", "not string");
  expect_refused(bert_json(), set("new", {{"a", 1}}), ".model.vocab: token \"new\"", "an object");
  expect_refused(
      xlm_roberta_json(), [](Json& j) { j["model"]["unk_id"] = 99; }, ".model.unk_id: ", "99");
  expect_refused(
      xlm_roberta_json(), [](Json& j) { j["model"]["vocab"][4] = {"a"}; }, ".model.vocab[4]: ", "score");
}

TEST(TokenizerJson, GapsBetweenIdsAreAllowed) {
  Json json = bert_json();
  json["model"]["vocab"]["far"] = 1 << 30;
  const Pipeline pipeline = pipeline_of(json);
  EXPECT_EQ(pipeline.highest_id(), 1 << 30);
  EXPECT_EQ(pipeline.encode("far").ids, std::vector<int32_t>{1 << 30});
}

TEST(TokenizerJson, MergesAreChecked) {
  const auto merge = [](const Json& merge) { return [=](Json& j) { j["model"]["merges"].push_back(merge); }; };
  expect_refused(roberta_json(), merge("a z"), ".model.merges[3]: ", "\"z\" is not in the vocabulary");
  expect_refused(roberta_json(), merge("c c"), ".model.merges[3]: ", "\"cc\" is not in the vocabulary");
  expect_refused(roberta_json(), merge("a b c"), ".model.merges[3]: ", "two tokens");
  expect_refused(roberta_json(), merge({"a"}), ".model.merges[3]: ", "a pair");
  expect_refused(roberta_json(), merge(7), ".model.merges[3]: ", "a string is wanted");
}

TEST(TokenizerJson, CharsmapsAreChecked) {
  const auto charsmap = [](const std::string& base64) {
    return [=](Json& j) { j["normalizer"] = {{"type", "Precompiled"}, {"precompiled_charsmap", base64}}; };
  };
  const std::string where = ".normalizer.precompiled_charsmap: ";
  expect_refused(bert_json(), charsmap("a"), where, "not base64");
  expect_refused(bert_json(), charsmap("A*=="), where, "not base64");
  expect_refused(bert_json(), charsmap("AAAAAA=="), where, "no trie");                  // a trie of no bytes
  expect_refused(bert_json(), charsmap("AAEAAAAA"), where, "shorter than its trie");    // 256 bytes are announced
  expect_refused(bert_json(), charsmap("BAAAAAD8AAA="), ".normalizer: ", "leads out");  // its only unit points to the 63rd
  expect_refused(bert_json(), charsmap("BAAAAAAAAAD/"), where, "not UTF-8");
}

TEST(TokenizerJson, PairsOfTextsAreChecked) {
  const Json a = {{"Sequence", {{"id", "A"}, {"type_id", 0}}}}, b = {{"Sequence", {{"id", "B"}, {"type_id", 1}}}};
  const auto pair = [](const Json& pieces) {
    return [=](Json& j) {
      j["post_processor"] = {{"type", "TemplateProcessing"}, {"pair", pieces}, {"special_tokens", Json::object()}};
    };
  };
  expect_refused(bert_json(), pair(Json::array({a})), ".post_processor.pair: ", "A once and then B once");
  expect_refused(bert_json(), pair(Json::array({b, a})), ".post_processor.pair[0]: ", "A once and then B once");
  expect_refused(bert_json(), pair(Json::array({a, b, {{"SpecialToken", {{"id", "[SEP]"}, {"type_id", 1}}}}})),
                 ".post_processor.special_tokens: ", "\"[SEP]\" is missing");
}

TEST(TokenizerJson, NeitherDepthNorGrowthIsWithoutLimit) {
  expect_refused(
      bert_json(),
      [](Json& j) {
        for (int i = 0; i < 20; ++i)
          j["normalizer"] = {{"type", "Sequence"}, {"normalizers", Json::array({j["normalizer"]})}};
      },
      ".normalizer.normalizers[0]", "nested too deeply");
  Json json = bert_json();
  const Json growth = {{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", std::string(1000, 'a')}};
  json["normalizer"] = {{"type", "Sequence"}, {"normalizers", std::vector<Json>(60, growth)}};
  EXPECT_THAT([&] { pipeline_of(json).encode("a"); }, ThrowsMessage<InvalidArgument>(HasSubstr("64 MB")));
}

TEST(Base64, TakesWhatIsBase64) {
  EXPECT_EQ(decode_base64("aGVsbG8="), "hello");
  EXPECT_EQ(decode_base64("aGVsbG8h"), "hello!");
  EXPECT_EQ(decode_base64(""), "");
  for (const char* wrong : {"aGVsbG8", "aGVsbG9=", "aGVs bG8h", "====", "a==="}) EXPECT_FALSE(decode_base64(wrong)) << wrong;
}

}  // namespace
}  // namespace trireme::trainer
