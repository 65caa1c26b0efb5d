#include "trireme/trainer/squad/prediction_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/trainer/json/json.h"

namespace trireme::trainer {
namespace {

TEST(PredictionFiles, AsPythonWritesThem) {
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "prediction_files_test";
  std::filesystem::create_directory(folder);
  std::vector<Prediction> predictions(2);
  predictions[0].id = "1";
  predictions[0].text = "é \"x\"";
  predictions[0].n_best = {{"é \"x\"", 1.5f, -2, 1}, {"", 0, 0, 1e-6f}};
  predictions[0].null_odds = 0.1f;
  predictions[1].id = "2";
  write_predictions(folder, "eval", predictions, false);
  EXPECT_FALSE(std::filesystem::exists(folder / "eval_null_odds.json"));
  EXPECT_EQ(read_file(folder / "eval_predictions.json"), "{\n    \"1\": \"\\u00e9 \\\"x\\\"\",\n    \"2\": \"\"\n}\n");
  EXPECT_EQ(read_file(folder / "eval_nbest_predictions.json"), R"({
    "1": [
        {
            "start_logit": 1.5,
            "end_logit": -2.0,
            "text": "\u00e9 \"x\"",
            "probability": 1.0
        },
        {
            "start_logit": 0.0,
            "end_logit": 0.0,
            "text": "",
            "probability": 9.999999974752427e-07
        }
    ],
    "2": []
}
)");
  write_predictions(folder, "predict", predictions, true);
  EXPECT_EQ(read_file(folder / "predict_null_odds.json"), "{\n    \"1\": 0.10000000149011612,\n    \"2\": 0.0\n}\n");
  // Whoever reads it meanwhile keeps the whole of the old one.
  std::filesystem::create_hard_link(folder / "predict_null_odds.json", folder / "old");
  write_predictions(folder, "predict", {}, true);
  EXPECT_EQ(read_file(folder / "old"), "{\n    \"1\": 0.10000000149011612,\n    \"2\": 0.0\n}\n");
  EXPECT_EQ(read_file(folder / "predict_null_odds.json"), "{}\n");
  std::filesystem::remove_all(folder);
  EXPECT_THAT([&] { write_predictions(folder, "eval", predictions, false); },
              testing::ThrowsMessage<IoError>(testing::HasSubstr("eval_predictions.json: No such file")));
}

}  // namespace
}  // namespace trireme::trainer
