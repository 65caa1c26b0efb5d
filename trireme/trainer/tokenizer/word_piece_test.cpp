#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/trainer/tokenizer/test_tokenizers.h"

namespace trireme::trainer {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

TEST(WordPiece, TakesTheLongestTokenEachTime) {
  const Pipeline pipeline = bert_pipeline();
  EXPECT_THAT(tokens_of(pipeline, "unwanted want"), ElementsAre("un[0,2]", "##want[2,6]", "##ed[6,8]", "want[9,13]"));
  EXPECT_THAT(tokens_of(pipeline, "Wanted?"), ElementsAre("want[0,4]", "##ed[4,6]", "?[6,7]"));
}

TEST(WordPiece, AWordWithAnythingUnknownIsUnknown) {
  const Pipeline pipeline = bert_pipeline();
  EXPECT_THAT(tokens_of(pipeline, "wantx un"), ElementsAre("[UNK][0,5]", "un[6,8]"));
  EXPECT_THAT(tokens_of(pipeline, "wantwantwantwant"), ElementsAre("[UNK][0,16]"));  // longer than 12 characters
}

TEST(WordPiece, SpansAreBytesOfTheGivenText) {
  const Pipeline pipeline = bert_pipeline();
  // U+00DC is two bytes and loses its dots; U+0301 belongs to no token and U+4E00 is a word by itself.
  EXPECT_THAT(tokens_of(pipeline, "\u00DCn\u0301want"), ElementsAre("un[0,3]", "##want[5,9]"));
  EXPECT_THAT(tokens_of(pipeline, "un\u4E00want"), ElementsAre("un[0,2]", "\u4E00[2,5]", "want[5,9]"));
}

TEST(WordPiece, AddedTokensAreFoundFirst) {
  const Pipeline pipeline = bert_pipeline();
  EXPECT_THAT(tokens_of(pipeline, "un[SEP]want [sep]"),
              ElementsAre("un[0,2]", "[SEP][2,7]", "want[7,11]", "[UNK][12,13]", "[UNK][13,16]", "[UNK][16,17]"));
}

TEST(WordPiece, WithoutATokenForTheUnknownSaysSo) {
  Json json = bert_json();
  json["model"]["unk_token"] = "<nothing>";
  const Pipeline pipeline = pipeline_of(json);
  EXPECT_THAT([&] { pipeline.encode("xyz"); }, ThrowsMessage<InvalidArgument>(HasSubstr("test.json.model: ")));
}

TEST(WordPiece, TextThatIsNotUtf8IsRefusedWithThePlace) {
  const Pipeline pipeline = bert_pipeline();
  for (const std::string text : {"ab\xff", "ab\xc0\x80", "ab\xed\xa0\x80", "ab\xf4\x90\x80\x80", "ab\xe4\xb8", "ab\x80"}) {
    EXPECT_THAT([&] { pipeline.encode(text); }, ThrowsMessage<InvalidArgument>(HasSubstr("byte 2 ")));
  }
}

}  // namespace
}  // namespace trireme::trainer
