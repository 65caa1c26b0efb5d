#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/trainer/tokenizer/byte_level.h"
#include "trireme/trainer/tokenizer/test_tokenizers.h"

namespace trireme::trainer {
namespace {

using testing::ElementsAre;

TEST(Bpe, JoinsTheLowestRankFirst) {
  const Pipeline pipeline = pipeline_of(roberta_json());
  // "a b" comes before "b c".
  EXPECT_THAT(tokens_of(pipeline, "abc"), ElementsAre("ab[0,2]", "c[2,3]"));
  EXPECT_THAT(tokens_of(pipeline, "abbc ab"), ElementsAre("ab[0,2]", "bc[2,4]", "\u0120ab[5,7]"));
}

TEST(Bpe, TokensOfOneCharacterShareItsSpan) {
  const Pipeline pipeline = pipeline_of(roberta_json());
  EXPECT_THAT(tokens_of(pipeline, "a\u00E9"), ElementsAre("a[0,1]", "\u00C3[1,3]", "\u00A9[1,3]"));
}

TEST(Bpe, UntrimmedSpansHaveTheirSpace) {
  Json json = roberta_json();
  json["post_processor"]["trim_offsets"] = false;
  EXPECT_THAT(tokens_of(pipeline_of(json), "c ab"), ElementsAre("c[0,1]", "\u0120ab[1,4]"));
}

std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words;
  for (size_t begin = 0, end; begin < text.size(); begin = end) {
    end = gpt2_word_end(text, begin);
    words.emplace_back(text.substr(begin, end - begin));
  }
  return words;
}

TEST(Bpe, WordsAreThoseOfGpt2) {
  EXPECT_THAT(words_of("it's  12th!?  "), ElementsAre("it", "'s", " ", " 12", "th", "!?", "  "));
  EXPECT_THAT(words_of("we'll 'x\n\nx\u00A0y"), ElementsAre("we", "'ll", " '", "x", "\n", "\n", "x", "\u00A0", "y"));
}

}  // namespace
}  // namespace trireme::trainer
