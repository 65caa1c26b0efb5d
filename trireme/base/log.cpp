#include "trireme/base/log.h"

#include <unistd.h>

#include <atomic>
#include <mutex>
#include <string_view>
#include <unordered_set>

#include "trireme/base/env.h"
#include "trireme/base/error.h"

namespace trireme {

namespace {

constexpr std::string_view kNames[] = {"error", "warn", "info", "debug", "trace"};

std::atomic<int> known_rank{-1};

// One write() per line, so that lines of several ranks on one terminal do not mix.
void write_line(LogLevel level, std::string_view message) {
  int rank = known_rank.load(std::memory_order_relaxed);
  std::string line =
      str("trireme: ", rank < 0 ? "" : str("rank ", rank, ": "), kNames[static_cast<int>(level)], ": ", message, "\n");
  [[maybe_unused]] ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
}

// A log that throws would turn a report of trouble into another trouble: a wrong level is told, and warn stands in for it.
LogLevel level_from_environment() {
  try {
    std::string name = env::text("CCL_LOG_LEVEL");
    for (size_t i = 0; i < std::size(kNames); ++i)
      if (name == kNames[i]) return static_cast<LogLevel>(i);
  } catch (const InvalidArgument& error) {
    write_line(LogLevel::error, error.what());
  }
  return LogLevel::warn;
}

// False for a text that was asked about before.
bool is_new(const std::string& message) {
  static std::mutex mutex;
  // Never destroyed: other threads may still log while the process exits.
  static auto& said = *new std::unordered_set<std::string>;
  std::lock_guard lock(mutex);
  return said.insert(message).second;
}

}  // namespace

void set_log_rank(int rank) { known_rank.store(rank, std::memory_order_relaxed); }

bool log_enabled(LogLevel level) {
  static const LogLevel enabled = level_from_environment();
  return level <= enabled;
}

void log(LogLevel level, const std::string& message) {
  if (log_enabled(level)) write_line(level, message);
}

void log_once(LogLevel level, const std::string& message) {
  if (log_enabled(level) && is_new(message)) write_line(level, message);
}

void announce(const std::string& message) {
  if (log_enabled(LogLevel::warn) && is_new(message)) write_line(LogLevel::info, message);
}

}  // namespace trireme
