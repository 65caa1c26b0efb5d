#include "trireme/trainer/report/results.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "trireme/cpu/temporary_root.h"

namespace trireme::trainer {
namespace {

using testing::HasSubstr;

TEST(Results, AreMergedInOrder) {
  cpu::TemporaryRoot root;
  save_metrics(root.path(), "train", {{"train_loss", 1.5}, {"epoch", 2.0}});
  save_metrics(root.path(), "eval", {{"eval_f1", 88.5}, {"epoch", 3.0}});
  EXPECT_EQ(read_file(root.path() / "train_results.json"), "{\n    \"epoch\": 2.0,\n    \"train_loss\": 1.5\n}");
  EXPECT_EQ(read_file(root.path() / "all_results.json"),
            "{\n    \"epoch\": 3.0,\n    \"eval_f1\": 88.5,\n    \"train_loss\": 1.5\n}");
}

TEST(Results, OfAnEarlierRunNeedNotBeSound) {
  cpu::TemporaryRoot root;
  root.write("all_results.json", R"({"train_loss": NaN, "note": "NaN"})");
  save_metrics(root.path(), "eval", {{"eval_f1", 1.0}});
  EXPECT_EQ(read_json(root.path() / "all_results.json"),
            Json({{"eval_f1", 1.0}, {"note", "NaN"}, {"train_loss", nullptr}}));
  for (const char* spoilt : {"", "[]", "{\"train_loss\""}) {
    root.write("all_results.json", spoilt);
    testing::internal::CaptureStderr();
    save_metrics(root.path(), "eval", {{"eval_f1", 1.0}});
    EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("all_results.json"));
    EXPECT_EQ(read_json(root.path() / "all_results.json"), Json({{"eval_f1", 1.0}}));
  }
}

TEST(Results, TheTableIsHuggingFaces) {
  EXPECT_EQ(metrics_table("train", {{"train_runtime", 12.3456},
                                    {"epoch", 3.0},
                                    {"total_flos", 5.0e13},
                                    {"train_samples", 1200},
                                    {"train_loss", 1.23456789}}),
            "***** train metrics *****\n"
            "  epoch         =        3.0\n"
            "  total_flos    =    46566GF\n"
            "  train_loss    =     1.2346\n"
            "  train_runtime = 0:00:12.34\n"
            "  train_samples =       1200\n");
  EXPECT_THAT(metrics_table("eval", {{"eval_runtime", 90061.0}}), HasSubstr("= 1 day, 1:01:01.00"));
}

TEST(Results, SpeedIsRoundedAsHuggingFaceRounds) {
  EXPECT_EQ(speed_metrics("train", 3.0, 10, 5).dump(),
            R"({"train_runtime":3.0,"train_samples_per_second":3.333,"train_steps_per_second":1.667})");
  EXPECT_EQ(speed_metrics("eval", 0.0, 10, 5).size(), 1u);
}

}  // namespace
}  // namespace trireme::trainer
