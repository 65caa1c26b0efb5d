#include "trireme/trainer/report/events.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "trireme/base/error.h"
#include "trireme/cpu/temporary_root.h"
#include "trireme/trainer/json/json.h"
#include "trireme/trainer/report/crc32c.h"

namespace trireme::trainer {
namespace {

using testing::HasSubstr;
using testing::MatchesRegex;
using testing::ThrowsMessage;

TEST(Crc32c, HasTheKnownValues) {
  EXPECT_EQ(crc32c("123456789"), 0xe3069283u);            // the check value of CRC-32C
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aau);  // RFC 3720, B.4
  EXPECT_EQ(crc32c(""), 0u);
}

TEST(Events, AFileHasItsNameAndItsVersionFirst) {
  cpu::TemporaryRoot root;
  EventWriter first(root.path() / "runs"), second(root.path() / "runs");
  EXPECT_NE(first.file(), second.file());
  EXPECT_THAT(first.file().filename().string(), MatchesRegex("events\\.out\\.tfevents\\.[0-9]{10}\\..+\\.[0-9]+\\.[0-9]+"));
  const std::string text = read_file(first.file());
  EXPECT_THAT(text, HasSubstr("brain.Event:2"));
  // Length, its CRC, the data, its CRC: nothing is buffered.
  uint64_t length = 0;
  std::memcpy(&length, text.data(), sizeof length);
  EXPECT_EQ(text.size(), 8 + 4 + length + 4);
  first.scalar("train/loss", 1.5, 10);
  EXPECT_GT(read_file(first.file()).size(), text.size());
}

TEST(Events, ComplaintsNameTheFileAndTheWayOut) {
  cpu::TemporaryRoot root;
  root.write("runs", "a file");
  EXPECT_THAT([&] { EventWriter(root.path() / "runs"); }, ThrowsMessage<IoError>(HasSubstr("a file, not a directory")));
}

TEST(Events, TagsAreHuggingFaces) {
  EXPECT_EQ(tensorboard_tag("loss"), "train/loss");
  EXPECT_EQ(tensorboard_tag("eval_f1"), "eval/f1");
  EXPECT_EQ(tensorboard_tag("train_runtime"), "train/train_runtime");
  EXPECT_THAT(default_logging_dir("out").string(),
              MatchesRegex("out/runs/[A-Z][a-z]{2}[0-9]{2}_[0-9]{2}-[0-9]{2}-[0-9]{2}_.+"));
}

}  // namespace
}  // namespace trireme::trainer
