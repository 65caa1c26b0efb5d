#include "trireme/trainer/options/qa_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "trireme/base/error.h"
#include "trireme/cpu/temporary_root.h"
#include "trireme/trainer/options/main_options.h"
#include "trireme/trainer/options/small_options.h"

namespace trireme::trainer {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Optional;
using testing::ThrowsMessage;

using Words = std::vector<std::string>;

Words qa_words(const Words& more, const Words& base = {"--model_name_or_path", "m", "--output_dir", "o", "--train_file",
                                                       "t.json", "--validation_file", "v.json", "--do_train"}) {
  Words words = base;
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

QaOptions qa(const Words& more) { return parse_qa(qa_words(more)).options; }

auto complains(const Words& words, const testing::Matcher<std::string>& about) {
  return testing::Matches(ThrowsMessage<InvalidArgument>(about))([words] { parse_qa(words); });
}

TEST(QaOptions, TheGuidesCommandIsUnderstood) {
  const QaCommand command = parse_qa({"--model_name_or_path",
                                      "google-bert/bert-large-uncased",
                                      "--dataset_name",
                                      "squad",
                                      "--do_train",
                                      "--do_eval",
                                      "--per_device_train_batch_size",
                                      "12",
                                      "--learning_rate",
                                      "3e-5",
                                      "--num_train_epochs",
                                      "2",
                                      "--max_seq_length",
                                      "384",
                                      "--doc_stride",
                                      "128",
                                      "--output_dir",
                                      "/tmp/debug_squad/",
                                      "--no_cuda",
                                      "--ddp_backend",
                                      "ccl",
                                      "--use_ipex",
                                      "--bf16"});
  EXPECT_TRUE(command.options.do_train && command.options.do_eval && command.options.bf16);
  EXPECT_EQ(command.options.per_device_train_batch_size, 12);
  EXPECT_EQ(command.options.learning_rate, 3e-5);
  EXPECT_TRUE(command.given.notes.empty());
}

TEST(QaOptions, EveryNameIsThereOnce) {
  QaOptions options;
  const FlagTable table = qa_flags(options);
  std::set<std::string_view> seen;
  for (const Flag& flag : table.flags()) {
    EXPECT_TRUE(seen.insert(flag.name).second) << flag.name;
    EXPECT_FALSE(flag.help.empty()) << flag.name;
    for (std::string_view alias : flag.aliases) EXPECT_TRUE(seen.insert(alias).second) << alias;
  }
}

TEST(QaOptions, WhatIsMissingIsNamed) {
  EXPECT_TRUE(complains({}, HasSubstr("--model_name_or_path is missing")));
  EXPECT_TRUE(complains({"--model_name_or_path", "m"}, HasSubstr("--output_dir is missing")));
  const Words start = {"--model_name_or_path", "m", "--output_dir", "o"};
  EXPECT_TRUE(complains(start, HasSubstr("nothing to do")));
  EXPECT_TRUE(complains(qa_words({"--do_train"}, start), HasSubstr("there is no data")));
  EXPECT_TRUE(
      complains(qa_words({"--do_train", "--test_file", "x.json"}, start), HasSubstr("--do_train needs --train_file")));
  EXPECT_TRUE(
      complains(qa_words({"--do_eval", "--train_file", "x.json"}, start), HasSubstr("--do_eval needs --validation_file")));
  EXPECT_TRUE(
      complains(qa_words({"--do_predict", "--train_file", "x.json"}, start), HasSubstr("--do_predict needs --test_file")));
}

TEST(QaOptions, WhatDoesNotFitTogetherIsNamed) {
  EXPECT_TRUE(complains(qa_words({"--train_file", "t.csv"}), AllOf(HasSubstr("--train_file t.csv"), HasSubstr(".json"))));
  EXPECT_TRUE(complains(qa_words({"--doc_stride", "384"}), HasSubstr("below --max_seq_length, which is 384")));
  EXPECT_TRUE(
      complains(qa_words({"--logging_steps", "0"}), HasSubstr("--logging_strategy steps needs --logging_steps above 0")));
  EXPECT_TRUE(complains(qa_words({"--save_steps", "0"}), HasSubstr("--save_steps above 0")));
  EXPECT_EQ(qa({"--save_steps", "0", "--save_strategy", "no"}).save_strategy, "no");
  EXPECT_TRUE(complains(qa_words({"--do_train", "False", "--do_eval", "--resume_from_checkpoint", "c"}),
                        HasSubstr("needs --do_train")));
  EXPECT_TRUE(complains(qa_words({"--ddp_backend", "gloo"}), HasSubstr("use ccl")));
  for (const char* flag : {"--per_device_train_batch_size", "--gradient_accumulation_steps", "--ddp_bucket_cap_mb"})
    EXPECT_TRUE(complains(qa_words({flag, "4611686018427387904"}), AllOf(HasSubstr(flag), HasSubstr("1048576"))));
  for (const char* epochs : {"0", "1048577", "1e300"})
    EXPECT_TRUE(complains(qa_words({"--num_train_epochs", epochs}), HasSubstr("above 0 and at most 1048576")));
  EXPECT_TRUE(complains(qa_words({"--report_to", "wandb"}), HasSubstr("TensorBoard's event files and JSON, nothing else")));
  EXPECT_TRUE(complains(qa_words({"--load_best_model_at_end"}), HasSubstr("--eval_strategy and --save_strategy")));
}

TEST(QaOptions, ADatasetIsNamedOrGivenAsFiles) {
  const Words start = {"--model_name_or_path", "m", "--output_dir", "o", "--dataset_name", "squad", "--do_train"};
  EXPECT_TRUE(complains(qa_words({"--train_file", "t.json"}, start),
                        HasSubstr("--dataset_name squad and --train_file t.json: give a dataset's name or files, not both")));
  EXPECT_TRUE(complains(qa_words({"--validation_file", "v.json"}, start), HasSubstr("and --validation_file v.json")));
  EXPECT_TRUE(complains(qa_words({"--do_predict"}, start), HasSubstr("--do_predict needs --test_file")));
  EXPECT_EQ(parse_qa(qa_words({"--do_predict", "--test_file", "t.json"}, start)).options.test_file, "t.json");
}

TEST(QaOptions, AreCompletedAsTrainingArgumentsDoes) {
  const QaOptions o = qa({"--evaluation_strategy", "steps", "--logging_steps", "50"});
  EXPECT_TRUE(o.do_eval);
  EXPECT_THAT(o.eval_steps, Optional(50.0));
  EXPECT_THAT(qa({"--eval_strategy", "steps", "--eval_steps", "0.2"}).eval_steps, Optional(0.2));
  EXPECT_TRUE(qa({"--resume_from_checkpoint", "true"}).resumes_from_last());
  EXPECT_FALSE(qa({"--resume_from_checkpoint", "False"}).resume_from_checkpoint.has_value());
  EXPECT_EQ(qa({"--resume_from_checkpoint", "o/checkpoint-5"}).resume_from_checkpoint, "o/checkpoint-5");
  EXPECT_TRUE(qa({}).writes_tensorboard());
  EXPECT_FALSE(qa({"--report_to", "none"}).writes_tensorboard());
  EXPECT_EQ(qa({}).sampling_seed(), 42);
  EXPECT_EQ(qa({"--data_seed", "7"}).sampling_seed(), 7);
}

TEST(QaOptions, StepsMayBeAShareOfAll) {
  EXPECT_EQ(steps_of(500, 2000), 500);
  EXPECT_EQ(steps_of(0.1, 1999), 200);
  EXPECT_EQ(steps_of(1, 2000), 1);
  EXPECT_EQ(warmup_steps_of(qa({"--warmup_ratio", "0.1"}), 1999), 200);
  EXPECT_EQ(warmup_steps_of(qa({"--warmup_ratio", "0.1", "--warmup_steps", "30"}), 2000), 30);
  EXPECT_EQ(warmup_steps_of(qa({"--warmup_ratio", "1"}), 10), 10);
  EXPECT_EQ(warmup_steps_of(qa({}), 2000), 0);
}

TEST(QaOptions, AnOutputDirectoryThatIsInUseIsRefused) {
  cpu::TemporaryRoot root;
  QaOptions o = qa({});
  o.output_dir = (root.path() / "out").string();
  EXPECT_FALSE(why_not_output_dir(o, false)) << "it does not exist yet";
  root.write("out/model.safetensors", "x");
  EXPECT_THAT(why_not_output_dir(o, false), Optional(HasSubstr("--overwrite_output_dir")));
  EXPECT_FALSE(why_not_output_dir(o, true)) << "there is a checkpoint to go on from";
  o.overwrite_output_dir = true;
  EXPECT_FALSE(why_not_output_dir(o, false));
  o.overwrite_output_dir = o.do_train = false;
  EXPECT_FALSE(why_not_output_dir(o, false)) << "an evaluation may go beside the model";
}

TEST(SmallOptions, AreCheckedAlike) {
  EXPECT_THAT(parse_ask({"--model_name_or_path", "m", "--context", "c", "--question", "Who?", "Where?"}).options.question,
              ElementsAre("Who?", "Where?"));
  EXPECT_THAT([] { parse_ask({"--model_name_or_path", "m"}); }, ThrowsMessage<InvalidArgument>(HasSubstr("--context_file")));
  EXPECT_THAT(
      [] {
        parse_ask({"--context", "c"});
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("--model is missing")));
  EXPECT_EQ(parse_ask({"--model", "m", "--context", "c"}).options.model_name_or_path, "m");
  EXPECT_EQ(parse_info({"--ranks", "4", "--json"}).options.ranks, 4);
  EXPECT_THAT([] { parse_info({"--ranks", "0"}); }, ThrowsMessage<InvalidArgument>(HasSubstr("from 1 to 65536")));
  EXPECT_THAT(
      [] {
        parse_bench({"--min_bytes", "64", "--max_bytes", "8"});
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("--max_bytes, which is 8")));
  EXPECT_TRUE(parse_bench({"--help"}).given.help);
  EXPECT_THAT(ask_help() + info_help() + bench_help(), HasSubstr("mpirun -n 2 trireme bench"));
}

TEST(MainOptions, FindTheSubcommand) {
  EXPECT_EQ(parse_main({"qa", "--do_train"}).subcommand, Subcommand::qa);
  EXPECT_THAT(parse_main({"qa", "--do_train"}).rest, ElementsAre("--do_train"));
  EXPECT_EQ(parse_main({}).subcommand, Subcommand::help);
  EXPECT_EQ(parse_main({"--version"}).subcommand, Subcommand::version);
  EXPECT_THAT(parse_main({"help", "ask"}).rest, ElementsAre("--help"));
  EXPECT_THAT([] { parse_main({"bnech"}); },
              ThrowsMessage<InvalidArgument>(
                  "trireme bnech: there is no such subcommand; did you mean bench? There are: qa, ask, info, bench"));
  EXPECT_THAT(main_help(), AllOf(HasSubstr("qa "), HasSubstr("ask "), HasSubstr("info "), HasSubstr("bench ")));
  EXPECT_THAT(version_text(), testing::MatchesRegex("trireme [0-9]+\\.[0-9]+\\.[0-9]+"));
}

TEST(QaOptions, RanksShareWhatDecidesTheTraining) {
  QaOptions o;
  o.learning_rate = 1e-4;
  o.output_dir = "out";
  const Json flags = shared_flags(o);
  EXPECT_EQ(flags["learning_rate"], 1e-4);
  for (const char* name : {"seed", "max_steps", "do_eval", "eval_steps", "save_steps", "bf16", "ddp_bucket_cap_mb"})
    EXPECT_TRUE(flags.contains(name)) << name;
  for (const char* name : {"output_dir", "train_file", "log_level", "token"}) EXPECT_FALSE(flags.contains(name)) << name;
}

}  // namespace
}  // namespace trireme::trainer
