#include "trireme/base/log.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace trireme {
namespace {

// The level is read once per process, so each test says its lines in a process of its own.
class LogDeathTest : public testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }

  [[noreturn]] static void say_all(const char* level) {
    level ? setenv("CCL_LOG_LEVEL", level, 1) : unsetenv("CCL_LOG_LEVEL");
    log(LogLevel::error, "e");
    log(LogLevel::warn, "w");
    log(LogLevel::info, "i");
    log(LogLevel::debug, "d");
    log(LogLevel::trace, "t");
    std::exit(0);
  }
};

TEST_F(LogDeathTest, WarnIsTheDefault) {
  EXPECT_EXIT(say_all(nullptr), testing::ExitedWithCode(0), "^trireme: error: e\ntrireme: warn: w\n$");
}

TEST_F(LogDeathTest, TheLevelCutsWhatIsBelowIt) {
  EXPECT_EXIT(say_all("error"), testing::ExitedWithCode(0), "^trireme: error: e\n$");
  EXPECT_EXIT(say_all("trace"), testing::ExitedWithCode(0), "info: i\ntrireme: debug: d\ntrireme: trace: t\n$");
}

TEST_F(LogDeathTest, AWrongLevelIsToldAndDoesNotThrow) {
  EXPECT_EXIT(
      say_all("loud"), testing::ExitedWithCode(0),
      "^trireme: error: CCL_LOG_LEVEL=loud: expected error.warn.info.debug.trace\ntrireme: error: e\ntrireme: warn: w\n$");
}

TEST_F(LogDeathTest, OnceMeansOncePerText) {
  auto say = [] {
    for (int i = 0; i < 3; ++i) log_once(LogLevel::error, "same");
    log_once(LogLevel::error, "other");
    std::exit(0);
  };
  EXPECT_EXIT(say(), testing::ExitedWithCode(0), "^trireme: error: same\ntrireme: error: other\n$");
}

TEST_F(LogDeathTest, AnAnnouncementIsReadAtTheDefaultLevelOnce) {
  auto say = [](const char* level) {
    level ? setenv("CCL_LOG_LEVEL", level, 1) : unsetenv("CCL_LOG_LEVEL");
    for (int i = 0; i < 2; ++i) announce("chosen");
    std::exit(0);
  };
  EXPECT_EXIT(say(nullptr), testing::ExitedWithCode(0), "^trireme: info: chosen\n$");
  EXPECT_EXIT(say("error"), testing::ExitedWithCode(0), "^$");
}

TEST_F(LogDeathTest, LinesCarryTheRankOnceItIsKnown) {
  auto say = [] {
    log(LogLevel::error, "before");
    set_log_rank(3);
    log(LogLevel::error, "after");
    std::exit(0);
  };
  EXPECT_EXIT(say(), testing::ExitedWithCode(0), "^trireme: error: before\ntrireme: rank 3: error: after\n$");
}

}  // namespace
}  // namespace trireme
