#include "trireme/trainer/squad/python_text.h"

#include <gtest/gtest.h>

namespace trireme::trainer {
namespace {

TEST(PythonText, CodePointsAndBytes) {
  EXPECT_EQ(byte_of_code_point("aé€b", 0), 0u);
  EXPECT_EQ(byte_of_code_point("aé€b", 2), 3u);
  EXPECT_EQ(byte_of_code_point("aé€b", 3), 6u);
  EXPECT_EQ(byte_of_code_point("aé€b", 4), 7u);
  EXPECT_EQ(byte_of_code_point("aé€b", 5), std::string_view::npos);
  size_t at = 0;
  EXPECT_EQ(next_code_point("\xff!", at), 0xfffdu);
  EXPECT_EQ(at, 1u);
}

TEST(PythonText, LstripTakesEverySpace) {
  EXPECT_EQ(python_lstrip(" \t\r\n\x1f\u00a0\u3000what "), "what ");
  EXPECT_EQ(python_lstrip("\u200bwhat"), "\u200bwhat");
  EXPECT_EQ(python_lstrip("  "), "");
  EXPECT_EQ(python_lstrip(""), "");
}

TEST(PythonText, LowerMapsInFull) {
  EXPECT_EQ(python_lower("ABC xyz"), "abc xyz");
  EXPECT_EQ(python_lower("ÀÉ"), "àé");
  EXPECT_EQ(python_lower("İ"), "i̇");
  EXPECT_EQ(python_lower("ΣΑΣ Σ"), "σας σ");
}

TEST(PythonText, JsonStringsAreAscii) {
  EXPECT_EQ(python_json_string("a\"\\/\n\x01\x7f"), R"("a\"\\/\n\u0001\u007f")");
  EXPECT_EQ(python_json_string("é😀"), R"("\u00e9\ud83d\ude00")");
}

}  // namespace
}  // namespace trireme::trainer
