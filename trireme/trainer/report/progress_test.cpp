#include "trireme/trainer/report/progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/base/fd.h"

namespace trireme::trainer {
namespace {

using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

// A pipe in the place of stderr, and a clock that a test moves.
class Screen {
 public:
  Screen() {
    int ends[2];
    if (::pipe(ends) != 0) throw IoError("pipe");
    read_.reset(ends[0]);
    write_.reset(ends[1]);
  }
  ProgressOptions options(bool terminal, size_t width = 80, int rank = 0) {
    ProgressOptions options;
    options.total_steps = 100;
    options.rank = rank;
    options.fd = write_.get();
    options.now = [this] { return now; };
    options.is_terminal = terminal;
    options.width = width;
    return options;
  }
  std::string close_and_read() {
    write_.reset();
    std::string text(65536, '\0');
    const ssize_t size = ::read(read_.get(), text.data(), text.size());
    return text.substr(0, static_cast<size_t>(std::max<ssize_t>(0, size)));
  }
  std::chrono::steady_clock::time_point now{};

 private:
  UniqueFd read_, write_;
};

ProgressUpdate update(int64_t step) { return {step, 0.25, 2.3456, 3e-5, 11.25, 12345.0, 0.07}; }

TEST(Progress, TheLineLosesItsLeastImportantPartsFirst) {
  EXPECT_EQ(progress_line(update(25), 100, 125.0),
            "step 25/100 | epoch 0.25 | loss 2.346 | 11.2 samples/s | 12.3k tokens/s | 2:05 left | 7% comm | lr 3e-05");
  EXPECT_EQ(progress_line(update(25), 100, 125.0, 70), "step 25/100 | epoch 0.25 | loss 2.346 | 11.2 samples/s | 2:05 left");
  EXPECT_EQ(progress_line(update(25), 100, 125.0, 25), "step 25/100 | loss 2.346");
  EXPECT_EQ(progress_line(update(25), 100, 125.0, 5), "step ");
}

TEST(Progress, IsPlainWhereThereIsNoTerminal) {
  Screen screen;
  {
    Progress progress(screen.options(false));
    screen.now += std::chrono::seconds(50);
    progress.step(update(24));
    progress.log(update(25));
  }
  EXPECT_EQ(screen.close_and_read(),
            "step 25/100 | epoch 0.25 | loss 2.346 | 11.2 samples/s | 12.3k tokens/s | 2:30 left | 7% comm | lr 3e-05\n");
}

TEST(Progress, IsRedrawnFiveTimesASecondAtMost) {
  Screen screen;
  {
    Progress progress(screen.options(true));
    for (int step = 1; step <= 100; ++step) {
      screen.now += std::chrono::milliseconds(10);
      progress.step(update(step));
    }
  }
  const std::string text = screen.close_and_read();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\r'), 6) << "one at once, one each 200 ms, the last at the end";
  EXPECT_THAT(text, AllOf(HasSubstr("100% [====================] step 100/100"), EndsWith("\n")));
}

TEST(Progress, FitsTheTerminal) {
  for (size_t width : {2u, 10u, 40u, 56u, 57u, 80u, 200u}) {
    Screen screen;
    { Progress(screen.options(true, width)).step(update(25)); }
    std::string text = screen.close_and_read();
    const size_t begin = text.find('\r') + 1, end = text.find("\033[K");
    EXPECT_LT(end - begin, width) << width << ": " << text;
  }
}

TEST(Progress, OtherRanksAreSilent) {
  Screen screen;
  {
    Progress progress(screen.options(true, 80, 1));
    progress.step(update(1));
    progress.log(update(1));
  }
  EXPECT_THAT(screen.close_and_read(), IsEmpty());
}

TEST(Stragglers, AreNamedWithWhoWaited) {
  EXPECT_EQ(
      straggler_sentence({{10, 2.5}, {12, 0.5}, {10.5, 2.0}}),
      "rank 1 was the slowest: it computed 12.0 s; rank 0 waited 2.50 s for it, rank 2 2.00 s (20 % of rank 0's time)");
  EXPECT_THAT(straggler_sentence({{10, 3}, {10, 3}, {10, 2.9}, {10, 2.8}, {10, 2.7}, {13, 0}}),
              HasSubstr("rank 0 waited 3.00 s for it, rank 1 3.00 s, rank 2 2.90 s and 2 more at most 2.80 s"));
}

TEST(Stragglers, RanksThatKeepStepAreSaidTo) {
  EXPECT_THAT(straggler_sentence({{10, 0.25}, {10, 0.5}}),
              "the 2 ranks kept step: each waited for the others 0.25 s to 0.50 s (at most 5 % of its time)");
  EXPECT_THAT(straggler_sentence({{10, 3.0}, {10, 3.1}}), StartsWith("the 2 ranks kept step"))
      << "a slow network is no rank's fault";
  EXPECT_EQ(straggler_sentence({{10, 0}}), "");
  EXPECT_THAT(straggler_sentence({{0, 0}, {0, 0}}), StartsWith("the 2 ranks kept step"));
}

}  // namespace
}  // namespace trireme::trainer
