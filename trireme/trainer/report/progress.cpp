#include "trireme/trainer/report/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>

#include "trireme/base/error.h"

namespace trireme::trainer {
namespace {

constexpr auto kRedrawInterval = std::chrono::milliseconds(200);
constexpr size_t kBarColumns = 20;

template <class... Args>
std::string formatted(const char* format, Args... args) {
  char buffer[128];
  std::snprintf(buffer, sizeof buffer, format, args...);
  return buffer;
}

std::string rate_text(double value) {
  return value >= 10000 ? formatted("%.1fk", value / 1000) : formatted(value >= 100 ? "%.0f" : "%.1f", value);
}

std::string bar(int64_t step, int64_t total) {
  const double share = total > 0 ? std::clamp(static_cast<double>(step) / static_cast<double>(total), 0.0, 1.0) : 0;
  const auto filled = static_cast<size_t>(share * static_cast<double>(kBarColumns));
  std::string text = std::string(filled, '=') + std::string(kBarColumns - filled, ' ');
  if (filled < kBarColumns && filled > 0) text[filled - 1] = '>';
  return formatted("%3.0f%% [", std::floor(share * 100)) + text + "]";
}

struct Part {
  int importance;  // the smallest go first where the line is too long
  std::string text;
};

std::vector<Part> parts_of(const ProgressUpdate& update, int64_t total, std::optional<double> seconds_left) {
  std::vector<Part> parts = {{9, str("step ", update.step, "/", total)}, {4, formatted("epoch %.2f", update.epoch)}};
  if (update.loss) parts.push_back({8, formatted("loss %.4g", *update.loss)});
  if (update.samples_per_second) parts.push_back({6, rate_text(*update.samples_per_second) + " samples/s"});
  if (update.tokens_per_second) parts.push_back({3, rate_text(*update.tokens_per_second) + " tokens/s"});
  if (seconds_left) parts.push_back({7, clock_text(*seconds_left) + " left"});
  if (update.communication_share) parts.push_back({2, formatted("%.0f%% comm", *update.communication_share * 100)});
  if (update.learning_rate) parts.push_back({1, formatted("lr %.3g", *update.learning_rate)});
  return parts;
}

std::string joined(const std::vector<Part>& parts) {
  std::string line;
  for (const Part& part : parts) line += (line.empty() ? "" : " | ") + part.text;
  return line;
}

}  // namespace

std::string clock_text(double seconds) {
  const auto whole = static_cast<int64_t>(std::llround(std::max(0.0, seconds)));
  if (whole < 60) return str(whole, "s");
  if (whole < 3600) return formatted("%d:%02d", static_cast<int>(whole / 60), static_cast<int>(whole % 60));
  return formatted("%lld:%02d:%02d", static_cast<long long>(whole / 3600), static_cast<int>(whole / 60 % 60),
                   static_cast<int>(whole % 60));
}

std::string progress_line(const ProgressUpdate& update, int64_t total_steps, std::optional<double> seconds_left,
                          size_t width) {
  std::vector<Part> parts = parts_of(update, total_steps, seconds_left);
  while (width > 0 && joined(parts).size() > width && parts.size() > 1)
    parts.erase(std::ranges::min_element(parts, {}, &Part::importance));
  const std::string line = joined(parts);
  return width > 0 ? line.substr(0, width) : line;
}

Progress::Progress(ProgressOptions options)
    : options_(std::move(options)),
      shows_(options_.rank == 0),
      redraws_(shows_ && !options_.plain && options_.is_terminal.value_or(::isatty(options_.fd) == 1)),
      start_(options_.now()) {}

void Progress::step(const ProgressUpdate& update) {
  if (!redraws_) return;
  pending_ = update;
  if (line_is_open_ && options_.now() - last_draw_ < kRedrawInterval) return;
  draw(update);
}

void Progress::log(const ProgressUpdate& update) {
  if (!shows_) return;
  if (redraws_) return draw(update);
  write(progress_line(update, options_.total_steps, seconds_left(update.step)) + "\n");
}

void Progress::finish() {
  if (!redraws_) return;
  if (pending_) draw(*pending_);
  if (line_is_open_) write("\n");
  line_is_open_ = false;
}

void Progress::draw(const ProgressUpdate& update) {
  // The last column stays free: some terminals go to the next line when it is filled.
  const size_t columns = width() - 1, bar_columns = kBarColumns + 8;
  const bool has_bar = columns >= 2 * bar_columns;
  std::string line = has_bar ? bar(update.step, options_.total_steps) + " " : "";
  line += progress_line(update, options_.total_steps, seconds_left(update.step), columns - (has_bar ? bar_columns : 0));
  write("\r" + line + "\033[K");
  line_is_open_ = true;
  last_draw_ = options_.now();
  pending_.reset();
}

void Progress::write(const std::string& text) const {
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t written = ::write(options_.fd, text.data() + done, text.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;
    done += static_cast<size_t>(written);
  }
}

// Asked anew each time: a window may be resized.
size_t Progress::width() const {
  if (options_.width) return std::max<size_t>(*options_.width, 2);
  winsize size{};
  if (::ioctl(options_.fd, TIOCGWINSZ, &size) != 0 || size.ws_col < 2) return 80;
  return size.ws_col;
}

std::optional<double> Progress::seconds_left(int64_t step) const {
  const int64_t done = step - options_.first_step;
  if (done <= 0 || options_.total_steps <= 0) return std::nullopt;
  const double elapsed = std::chrono::duration<double>(options_.now() - start_).count();
  return elapsed / static_cast<double>(done) * static_cast<double>(std::max<int64_t>(0, options_.total_steps - step));
}

}  // namespace trireme::trainer
