#include "trireme/trainer/squad/examples.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "trireme/base/error.h"

namespace trireme::trainer {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

std::vector<Example> parse(std::string_view text, ReadOptions options = {}) { return parse_squad(text, "x.json", options); }

constexpr std::string_view kNested = R"({"version": "v2.0", "data": [
  {"title": "Ships", "paragraphs": [
    {"context": "Ein Boot: ein Böötchen, ein Schiff.", "qas": [
      {"id": "1", "question": "Was?", "answers": [{"text": "Schiff", "answer_start": 28}, {"text": "ein Schiff", "answer_start": 24}]},
      {"id": "2", "question": "Wann?", "is_impossible": true, "answers": [], "plausible_answers": [{"text": "x", "answer_start": 0}]}]},
    {"context": "Zwei.", "qas": [{"id": "3", "question": "?", "answers": [{"text": "Zwei.", "answer_start": 0}]}]}]},
  {"title": "Empty", "paragraphs": []}]})";

constexpr std::string_view kRow =
    R"({"id": "1", "title": "T", "context": "a€ b", "question": "q", "answers": {"text": ["b"], "answer_start": [3]}})";

// The places of complaints follow from what kRow holds.
std::string row_with(const std::string& old, const std::string& replacement) {
  std::string row(kRow);
  row.replace(row.find(old), old.size(), replacement);
  return "{\"data\": [" + row + "]}";
}

TEST(Examples, NestedWithAnswersInBytes) {
  const std::vector<Example> examples = parse(kNested);
  ASSERT_EQ(examples.size(), 3u);
  EXPECT_EQ(examples[0].id, "1");
  EXPECT_EQ(examples[0].title, "Ships");
  EXPECT_EQ(examples[0].question, "Was?");
  ASSERT_EQ(examples[0].answers.size(), 2u);
  EXPECT_EQ(examples[0].answers[0].begin, 30u);
  EXPECT_EQ(examples[0].context->substr(examples[0].answers[1].begin), "ein Schiff.");
  EXPECT_TRUE(examples[1].answers.empty());
  EXPECT_EQ(examples[1].context, examples[0].context) << "a context is stored once";
  EXPECT_EQ(*examples[2].context, "Zwei.");
}

TEST(Examples, FlatRowsShareTheirContexts) {
  std::string second(kRow);
  second.replace(second.find("\"1\""), 3, "17");  // a number as an id
  const std::string rows = "{\"data\": [" + std::string(kRow) + "," + second + "]}";
  const std::vector<Example> examples = parse(rows);
  ASSERT_EQ(examples.size(), 2u);
  EXPECT_EQ(examples[0].title, "T");
  EXPECT_EQ(examples[0].answers.at(0).begin, 5u);
  EXPECT_EQ(examples[1].id, "17");
  EXPECT_EQ(examples[1].context, examples[0].context);
}

TEST(Examples, OneRowPerLine) {
  std::string second(kRow);
  second.replace(second.find("\"1\""), 3, "\"2\"");
  EXPECT_EQ(parse(std::string(kRow) + "\n").size(), 1u);
  EXPECT_EQ(parse("\n" + std::string(kRow) + "\n\n" + second + "\n").size(), 2u);
  EXPECT_EQ(parse(std::string(kRow) + "\r\n" + second, {true, 1}).size(), 1u);
  EXPECT_THAT([&] { parse(std::string(kRow) + "\n\n{\"id\": ]"); },
              ThrowsMessage<InvalidArgument>(HasSubstr("x.json: line 3, column 8: ")));
  EXPECT_THAT([&] { parse(std::string(kRow) + "\n" + std::string(kRow)); },
              ThrowsMessage<InvalidArgument>(HasSubstr("x.json: line 2.id: question number 1 has the id \"1\" too")));
}

TEST(Examples, NoMoreThanAskedFor) {
  EXPECT_EQ(parse(kNested, {true, 2}).size(), 2u);
  EXPECT_EQ(parse(kNested, {true, 99}).size(), 3u);
  EXPECT_EQ(parse(kNested, {true, 0}).size(), 0u);
  EXPECT_THROW(parse(kNested, {true, -2}), InvalidArgument);
}

TEST(Examples, AnswersMayBeMissing) {
  EXPECT_EQ(parse(std::string(kRow), {false, -1}).at(0).answers.size(), parse(std::string(kRow)).at(0).answers.size());
  const std::string text = row_with(R"(, "answers": {"text": ["b"], "answer_start": [3]})", "");
  EXPECT_TRUE(parse(text, {false, -1}).at(0).answers.empty());
  EXPECT_THAT([&] { parse(text); }, ThrowsMessage<InvalidArgument>("x.json.data[0]: \"answers\" is missing"));
}

TEST(Examples, TruncatedAtAnyByteIsRefused) {
  for (size_t length = 0; length < kNested.size(); ++length)
    EXPECT_THROW(parse(kNested.substr(0, length)), InvalidArgument) << length;
}

TEST(Examples, ComplaintsNameThePlace) {
  const auto expect = [](const std::string& text, const std::string& message) {
    EXPECT_THAT([&] { parse(text); }, ThrowsMessage<InvalidArgument>(HasSubstr(message))) << text;
  };
  expect("{\"data\": [\n{\"id\":", "x.json: line 2, column ");
  expect("{}", "x.json: \"data\" is missing");
  expect("[]", "x.json: an object is wanted, not array");
  expect("7", "x.json: an object is wanted, not number");
  expect(R"({"data": []})", "x.json: there is no question in it");
  expect(R"({"data": [{"title": "T", "paragraphs": [{"context": "c", "qas": []}]}]})", "x.json: there is no question in it");
  expect(R"({"data": {}})", "x.json.data: an array is wanted, not object");
  expect(R"({"data": ["x"]})", "x.json.data[0]: an object is wanted, not string");
  expect(R"({"data": [{"paragraphs": [{"context": "c"}]}]})", "x.json.data[0].paragraphs[0]: \"qas\" is missing");
  expect(R"({"data": [{"paragraphs": [{"context": "c", "qas": [{"id": "1"}]}]}]})",
         "x.json.data[0].paragraphs[0].qas[0]: \"question\" is missing");
  expect(row_with("\"a€ b\"", "\"\""), "x.json.data[0].context: the context is empty");
  expect(row_with("\"a€ b\"", "null"), "x.json.data[0].context: a string is wanted, not null");
  expect(row_with("\"1\"", "1.5"), "x.json.data[0].id: a string is wanted, not number");
  expect(row_with("\"q\"", "[]"), "x.json.data[0].question: a string is wanted, not array");
  expect(row_with("[\"b\"]", "[]"), "x.json.data[0].answers: 0 texts, and 1 places where they start");
  expect(row_with("[\"b\"]", "[\"\"]"), "x.json.data[0].answers.text[0]: the answer is empty");
  expect(row_with("[\"b\"]", "\"b\""), "x.json.data[0].answers.text: an array is wanted, not string");
  expect(row_with("[3]", "[2]"), "x.json.data[0].answers.answer_start[0]: the answer \"b\" does not stand at 2");
  expect(row_with("[3]", "[4]"), "x.json.data[0].answers.answer_start[0]: the answer \"b\" does not stand at 4");
  expect(row_with("[3]", "[5]"), "x.json.data[0].answers.answer_start[0]: 5 is beyond the end of the context");
  expect(row_with("[3]", "[-1]"), "x.json.data[0].answers.answer_start[0]: an answer cannot start at -1");
  expect(row_with("[3]", "[3.0]"), "x.json.data[0].answers.answer_start[0]: a whole number is wanted, not number");
  expect(row_with("[3]", "[18446744073709551615]"), "x.json.data[0].answers.answer_start[0]: an answer cannot start at -1");
  expect(row_with("\"question\"", "\"is_impossible\": true, \"question\""),
         "x.json.data[0]: is_impossible is true, and yet");
  expect(row_with("\"q\"", "\"\xff\""), "x.json: line 1, column ");
}

TEST(Examples, FilesAreNamed) {
  EXPECT_THAT([] { read_squad("/nowhere/x.json", {}); }, ThrowsMessage<IoError>(HasSubstr("/nowhere/x.json: No such file")));
  EXPECT_THAT([] { read_squad("/", {}); }, ThrowsMessage<IoError>(HasSubstr("is a directory")));
  const std::filesystem::path path = std::filesystem::path(testing::TempDir()) / "examples_test.json";
  std::ofstream(path) << kNested;
  EXPECT_EQ(read_squad(path, {}).size(), 3u);
  std::ofstream(path) << "{";
  EXPECT_THAT([&] { read_squad(path, {}); }, ThrowsMessage<InvalidArgument>(HasSubstr("examples_test.json: line 1")));
  std::filesystem::remove(path);
}

TEST(Examples, AnswersCanBeRequired) {
  EXPECT_NO_THROW(require_answers(parse(kNested, {true, 1}), "x.json"));
  EXPECT_THAT([] { require_answers(parse(kNested), "x.json"); },
              ThrowsMessage<InvalidArgument>(HasSubstr("x.json: question 2 has no answer")));
}

}  // namespace
}  // namespace trireme::trainer
