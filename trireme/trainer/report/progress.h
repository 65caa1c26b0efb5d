// What a run shows while it trains, and who waited for whom at its end.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace trireme::trainer {

// Where a run stands. What is not known is not shown.
struct ProgressUpdate {
  int64_t step = 0;
  double epoch = 0;
  std::optional<double> loss, learning_rate;
  std::optional<double> samples_per_second, tokens_per_second;  // of all ranks
  std::optional<double> communication_share;                    // of the step's time, 0 to 1
};

struct ProgressOptions {
  int64_t total_steps = 0;
  int64_t first_step = 0;  // already done when the run began: a resumed one
  int rank = 0;            // only rank 0 shows anything
  bool plain = false;      // no redrawing, on a terminal too: --disable_tqdm
  int fd = 2;              // stderr: results alone go to stdout
  // For tests: the time, whether fd is a terminal, and its width.
  std::function<std::chrono::steady_clock::time_point()> now = std::chrono::steady_clock::now;
  std::optional<bool> is_terminal;
  std::optional<size_t> width;
};

// On a terminal one line at the bottom, redrawn at most five times a second and cut to the terminal's width; elsewhere a
// plain line at each log(). The cursor is never hidden, so that a run that is killed leaves the terminal as it was. Not for
// several threads. What cannot be written (a closed terminal) is lost: a run does not end for it.
class Progress {
 public:
  explicit Progress(ProgressOptions options);
  ~Progress() { finish(); }
  Progress(const Progress&) = delete;

  void step(const ProgressUpdate& update);  // after each step
  void log(const ProgressUpdate& update);   // at logging steps
  void finish();                            // leaves the last state standing; more than once does nothing

 private:
  void draw(const ProgressUpdate& update);
  void write(const std::string& text) const;
  size_t width() const;
  std::optional<double> seconds_left(int64_t step) const;

  ProgressOptions options_;
  bool shows_, redraws_;
  std::chrono::steady_clock::time_point start_, last_draw_{};
  std::optional<ProgressUpdate> pending_;  // not drawn yet
  bool line_is_open_ = false;
};

// "step 120/1000 | epoch 0.36 | loss 2.314 | ...", the least important parts left out where `width` is too small. 0: no
// limit.
std::string progress_line(const ProgressUpdate& update, int64_t total_steps, std::optional<double> seconds_left,
                          size_t width = 0);

// 59s, 2:05, 1:02:05.
std::string clock_text(double seconds);

struct RankTimes {
  double compute_seconds = 0;
  double wait_seconds = 0;  // for other ranks
};

// One sentence, from every rank's times: which rank the others waited for and how long, or that they kept step. Empty for
// one rank.
std::string straggler_sentence(const std::vector<RankTimes>& ranks);

}  // namespace trireme::trainer
