#include "trireme/trainer/tokenizer/graphemes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace trireme::trainer {
namespace {

using testing::ElementsAre;

std::vector<std::string> clusters_of(std::string_view text) {
  std::vector<std::string> clusters;
  for (size_t begin = 0, end; begin < text.size(); begin = end) {
    end = grapheme_end(text, begin);
    clusters.emplace_back(text.substr(begin, end - begin));
  }
  return clusters;
}

TEST(Graphemes, MarksBelongToTheirLetter) {
  EXPECT_THAT(clusters_of("ae\u0301\u0302b"), ElementsAre("a", "e\u0301\u0302", "b"));
  EXPECT_THAT(clusters_of("\u0600\u0661a"), ElementsAre("\u0600\u0661", "a"));  // a character that is put before others
  EXPECT_THAT(clusters_of("\u0915\u0903x"), ElementsAre("\u0915\u0903", "x"));  // a spacing mark
  EXPECT_THAT(clusters_of("\r\n\n\u0301"), ElementsAre("\r\n", "\n", "\u0301"));
}

TEST(Graphemes, SyllablesAndConjuncts) {
  EXPECT_THAT(clusters_of("\u1100\u1161\u11A8\u1100"), ElementsAre("\u1100\u1161\u11A8", "\u1100"));
  EXPECT_THAT(clusters_of("\uAC00\u11A8\uAC00\u1161\uAC01\u1161"),
              ElementsAre("\uAC00\u11A8", "\uAC00\u1161", "\uAC01", "\u1161"));
  EXPECT_THAT(clusters_of("\u0915\u094D\u200D\u0937\u0915\u0937"),
              ElementsAre("\u0915\u094D\u200D\u0937", "\u0915", "\u0937"));
}

TEST(Graphemes, EmojiAndFlags) {
  EXPECT_THAT(clusters_of("\U0001F469\u200D\U0001F467\U0001F467"), ElementsAre("\U0001F469\u200D\U0001F467", "\U0001F467"));
  EXPECT_THAT(clusters_of("\U0001F44D\U0001F3FD!"), ElementsAre("\U0001F44D\U0001F3FD", "!"));
  EXPECT_THAT(clusters_of("a\u200D\U0001F467"), ElementsAre("a\u200D", "\U0001F467"));
  EXPECT_THAT(clusters_of("\U0001F1E9\U0001F1EA\U0001F1EB"), ElementsAre("\U0001F1E9\U0001F1EA", "\U0001F1EB"));
}

}  // namespace
}  // namespace trireme::trainer
