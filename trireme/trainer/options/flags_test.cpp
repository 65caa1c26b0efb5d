#include "trireme/trainer/options/flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "trireme/base/error.h"
#include "trireme/cpu/temporary_root.h"

namespace trireme::trainer {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::ThrowsMessage;

using Words = std::vector<std::string>;

struct Options {
  bool train = false, pad = true;
  std::optional<bool> bar;
  int64_t max_steps = -1;
  std::optional<int64_t> limit;
  double rate = 5e-5, logging_steps = 500;
  std::string kind = "linear";
  std::optional<std::string> file;
  std::vector<std::string> names = {"all"};
};

FlagTable flags(Options& o) {
  FlagTable table("trireme test");
  table.group("First");
  table.flag("train", &o.train, "Train.");
  table.flag("pad", &o.pad, "Pad.");
  table.flag("bar", &o.bar, "Show a bar.");
  table.flag("max_steps", &o.max_steps, "Steps.", at_least(-1));
  table.flag("limit", &o.limit, "Limit.", at_least(1));
  table.group("Second");
  table.flag("rate", &o.rate, "Rate.", from_up_to_below(0, 1));
  table.flag("logging_steps", &o.logging_steps, "Logs.", steps_or_ratio());
  table.flag("kind", &o.kind, "Kind.", one_of({"linear", "cosine"}, "others are not built in")).aliases = {"sort"};
  table.flag("file", &o.file, "File.");
  table.flag("names", &o.names, "Names.");
  table.moot("group_by_length", Kind::boolean, "packing makes it moot");
  table.refused("fp16", Kind::boolean, "say --bf16 instead");
  table.refused("backend", Kind::text, "there is one backend", {"auto"});
  return table;
}

Options parse(const Words& words, Given* given = nullptr) {
  Options options;
  const Given result = parse_flags(flags(options), words);
  if (given) *given = result;
  return options;
}

auto complains(const Words& words, const testing::Matcher<std::string>& about) {
  return testing::Matches(ThrowsMessage<InvalidArgument>(about))([words] { parse(words); });
}

TEST(Flags, AreGivenInEveryFormOfHuggingFaces) {
  const Options o =
      parse({"--train", "--pad", "False", "--max-steps=12", "--rate", "3e-5", "--kind", "cosine", "--file=a=b"});
  EXPECT_TRUE(o.train);
  EXPECT_FALSE(o.pad);
  EXPECT_EQ(o.max_steps, 12);
  EXPECT_EQ(o.rate, 3e-5);
  EXPECT_EQ(o.kind, "cosine");
  EXPECT_EQ(o.file, "a=b");
  EXPECT_FALSE(o.limit.has_value());
  EXPECT_EQ(parse({"--sort", "cosine"}).kind, "cosine");
  EXPECT_THAT(parse({"--names", "a", "b", "--train"}).names, ElementsAre("a", "b"));
}

TEST(Flags, BooleansUnderstandManyWords) {
  for (const char* word : {"True", "true", "1", "yes", "Y"}) EXPECT_TRUE(parse({"--train", word}).train) << word;
  for (const char* word : {"False", "false", "0", "no", "n"}) EXPECT_FALSE(parse({"--pad", word}).pad) << word;
  EXPECT_FALSE(parse({"--no_pad"}).pad);
  EXPECT_FALSE(parse({"--no-pad"}).pad);
  EXPECT_FALSE(parse({"--pad", "False", "--no_pad"}).pad);
  EXPECT_EQ(parse({"--bar"}).bar, true);
  EXPECT_TRUE(complains({"--no_train"}, HasSubstr("no such flag"))) << "argparse has --no_ only for what is True by default";
  EXPECT_TRUE(complains({"--no_pad=True"}, HasSubstr("takes no value; --pad False says the same")));
  EXPECT_TRUE(complains({"--train", "maybe"}, "--train maybe: wanted is True or False"));
}

TEST(Flags, TheLastOneCounts) {
  EXPECT_EQ(parse({"--max_steps", "1", "--max_steps", "2"}).max_steps, 2);
  EXPECT_FALSE(parse({"--train", "--train", "False"}).train);
  EXPECT_THAT(parse({"--names", "a", "--names", "b"}).names, ElementsAre("b"));
}

TEST(Flags, NegativeNumbersAreValues) {
  EXPECT_EQ(parse({"--max_steps", "-1"}).max_steps, -1);
  EXPECT_TRUE(complains({"--file", "-x"}, "--file: the value is missing; wanted is a text"));
  EXPECT_EQ(parse({"--file=-x"}).file, "-x");
}

TEST(Flags, WrongValuesAreNamedWithWhatIsAllowed) {
  EXPECT_TRUE(complains({"--max-steps", "twelve"}, "--max-steps twelve: wanted is a whole number, at least -1"));
  EXPECT_TRUE(complains({"--max_steps", "1.5"}, HasSubstr("a whole number")));
  EXPECT_TRUE(complains({"--max_steps", "-2"}, HasSubstr("at least -1")));
  EXPECT_TRUE(complains({"--max_steps", "99999999999999999999"}, HasSubstr("a whole number")));
  EXPECT_TRUE(complains({"--max_steps"}, "--max_steps: the value is missing; wanted is a whole number, at least -1"));
  EXPECT_TRUE(complains({"--rate", "1"}, "--rate 1: wanted is a number, at least 0 and below 1"));
  EXPECT_TRUE(complains({"--rate", "nan"}, HasSubstr("a number")));
  EXPECT_TRUE(complains({"--rate="}, HasSubstr("--rate: wanted is a number")));
  EXPECT_TRUE(complains({"--kind", "round"}, "--kind round: wanted is linear or cosine; others are not built in"));
  EXPECT_TRUE(complains({"--logging_steps", "1.5"}, HasSubstr("a share of all steps between 0 and 1")));
  EXPECT_EQ(parse({"--logging_steps", "0.25"}).logging_steps, 0.25);
}

TEST(Flags, UnknownOnesNameTheNearest) {
  EXPECT_TRUE(complains({"--max_step", "3"}, "--max_step: there is no such flag; did you mean --max_steps?"));
  EXPECT_TRUE(complains({"--srot=x"}, HasSubstr("did you mean --sort?")));
  EXPECT_TRUE(
      complains({"--quite_another"}, AllOf(HasSubstr("`trireme test --help` lists all"), Not(HasSubstr("did you mean")))));
  EXPECT_TRUE(complains({"word"}, HasSubstr("\"word\": a flag is wanted here")));
}

TEST(Flags, MootOnesAreNotedOnceAndRefusedOnesSayWhatToDo) {
  Given given;
  parse({"--group_by_length", "--group_by_length", "True", "--train"}, &given);
  EXPECT_THAT(given.notes, ElementsAre("--group_by_length has no effect: packing makes it moot"));
  EXPECT_TRUE(given.flags.contains("train") && given.flags.contains("group_by_length") && !given.flags.contains("pad"));
  EXPECT_TRUE(complains({"--group_by_length", "x"}, HasSubstr("True or False")));
  EXPECT_TRUE(complains({"--fp16"}, "--fp16: say --bf16 instead"));
  EXPECT_TRUE(complains({"--backend", "apex"}, "--backend: there is one backend"));
  parse({"--fp16", "False", "--backend", "auto", "--backend="});  // what asks for nothing is no error
}

TEST(Flags, ComeFromAFileThatStandsAlone) {
  cpu::TemporaryRoot root;
  const std::string file = (root.path() / "args.json").string();
  const auto write = [&](const std::string& text) { root.write("args.json", text); };
  write(R"({"train": true, "max_steps": 7, "rate": 1e-3, "names": ["a", "b"], "file": null, "fp16": false, "limit": "3"})");
  const Options o = parse({file});
  EXPECT_TRUE(o.train);
  EXPECT_EQ(o.max_steps, 7);
  EXPECT_EQ(o.rate, 1e-3);
  EXPECT_EQ(o.limit, 3);
  EXPECT_THAT(o.names, ElementsAre("a", "b"));
  write(R"({"max_step": 7})");
  EXPECT_TRUE(complains({file}, file + ": max_step: there is no such flag; did you mean --max_steps?"));
  write(R"({"max_steps": [7]})");
  EXPECT_TRUE(complains({file}, file + ": max_steps [7]: wanted is a whole number, at least -1"));
  write(R"({"max_steps": 7)");
  EXPECT_TRUE(complains({file}, HasSubstr("line 1")));
  EXPECT_TRUE(complains({file, "--train"}, HasSubstr("a .json file of arguments stands alone")));
}

TEST(Flags, HelpHasEveryFlagAndNoLongLine) {
  Options options;
  const FlagTable table = flags(options);
  const std::string text = help_text(table, "A test.\n", 60);
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 60u) << line;
  for (const Flag& flag : table.flags()) EXPECT_THAT(text, HasSubstr(str("--", flag.name)));
  EXPECT_THAT(text, HasSubstr("[5e-05]"));
  EXPECT_TRUE(parse_flags(table, {"--nonsense", "--help"}).help);
}

TEST(Flags, JsonHasWhatActs) {
  Options options;
  options.limit = 3;
  const Json json = flags(options).to_json();
  EXPECT_EQ(json["limit"], 3);
  EXPECT_EQ(json["pad"], true);
  EXPECT_TRUE(json["file"].is_null());
  EXPECT_FALSE(json.contains("fp16"));
}

TEST(Wrapped, BreaksBetweenWords) {
  EXPECT_EQ(wrapped("one two three", 7, 2), "one two\n  three");
  EXPECT_EQ(wrapped("unbreakable x", 4, 1), "unbreakable\n x");
  EXPECT_EQ(wrapped("", 4, 1), "");
}

}  // namespace
}  // namespace trireme::trainer
