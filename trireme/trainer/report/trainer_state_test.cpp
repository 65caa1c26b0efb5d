#include "trireme/trainer/report/trainer_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "trireme/base/error.h"
#include "trireme/cpu/temporary_root.h"

namespace trireme::trainer {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::ThrowsMessage;

TEST(TrainerState, ComesBackAsItWas) {
  cpu::TemporaryRoot root;
  TrainerState state;
  state.epoch = 0.5;
  state.global_step = 10;
  state.max_steps = 20;
  state.num_train_epochs = 1;
  state.total_flos = 1.5e15;
  state.train_batch_size = 8;
  state.log({{"loss", 2.25}, {"learning_rate", 3e-5}});
  save_state(state, root.path() / "trainer_state.json");
  const TrainerState read = load_state(root.path() / "trainer_state.json");
  EXPECT_EQ(to_text(read), to_text(state));
  EXPECT_EQ(read.log_history[0]["step"], 10);
  EXPECT_EQ(read.log_history[0]["epoch"], 0.5);
}

TEST(TrainerState, ReadsHuggingFacesOwn) {
  const TrainerState state =
      parse_state(R"({"best_metric": null, "epoch": 2.0, "global_step": 6, "logging_steps": 500.0, "eval_steps": 500,
      "log_history": [{"loss": NaN, "grad_norm": -Infinity, "text": "NaN \" Infinity", "step": 3}], "stateful_callbacks":
      {"TrainerControl": {"args": {"should_save": true}, "attributes": {}}}, "trial_name": null, "some_day": 1})",
                  "x.json");
  EXPECT_EQ(state.global_step, 6);
  EXPECT_EQ(state.logging_steps, 500);
  EXPECT_TRUE(state.log_history[0]["loss"].is_null() && state.log_history[0]["grad_norm"].is_null());
  EXPECT_EQ(state.log_history[0]["text"], "NaN \" Infinity");
  EXPECT_TRUE(state.stateful_callbacks.contains("TrainerControl"));
  EXPECT_THAT(to_text(state), HasSubstr("should_save"));
}

TEST(TrainerState, ComplaintsSayWhere) {
  const auto parse = [](const char* text) { return [text] { parse_state(text, "x.json"); }; };
  EXPECT_THAT(parse("{}"), ThrowsMessage<InvalidArgument>("x.json: \"global_step\" is missing"));
  EXPECT_THAT(parse(R"({"global_step": "six"})"),
              ThrowsMessage<InvalidArgument>(HasSubstr("x.json.global_step: a whole number is wanted")));
  EXPECT_THAT(parse(R"({"global_step": 1, "save_steps": 0.5})"),
              ThrowsMessage<InvalidArgument>(HasSubstr("x.json.save_steps")));
  EXPECT_THAT(parse(R"({"global_step": 1, "log_history": {}})"),
              ThrowsMessage<InvalidArgument>(HasSubstr("an array is wanted")));
  EXPECT_THAT(parse(R"({"global_step": 1)"), ThrowsMessage<InvalidArgument>(HasSubstr("x.json: line 1")));
}

TEST(TrainerState, ALossThatIsNoNumberIsStillJson) {
  TrainerState state;
  state.log({{"loss", std::nan("")}});
  EXPECT_THAT(to_text(state), AllOf(HasSubstr("\"loss\": null"), Not(HasSubstr("nan"))));
}

}  // namespace
}  // namespace trireme::trainer
