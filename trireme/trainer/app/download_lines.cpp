#include "trireme/trainer/app/download_lines.h"

#include <unistd.h>

#include <iomanip>
#include <iostream>

#include "trireme/base/error.h"
#include "trireme/trainer/train/seconds.h"

namespace trireme::trainer {
namespace {

constexpr uint64_t kSmallBytes = 1'000'000;
constexpr double kSecondsBetweenLines = 10;

std::string line_of(const HubProgress& at) {
  const auto megabytes = [](uint64_t bytes) { return static_cast<double>(bytes) / 1e6; };
  return str("download ", at.file, ": ", std::fixed, std::setprecision(1), megabytes(at.bytes), " of ", megabytes(at.total),
             " MB");
}

}  // namespace

std::function<void(const HubProgress&)> download_lines() {
  return [terminal = ::isatty(STDERR_FILENO) == 1, file = std::string(), last = 0.0](const HubProgress& at) mutable {
    const bool done = at.bytes >= at.total;
    if (at.total < kSmallBytes) return;
    if (terminal) {
      std::cerr << "\r" << line_of(at) << "\033[K" << (done ? "\n" : "") << std::flush;
      return;
    }
    if (!done && at.file == file && now() - last < kSecondsBetweenLines) return;
    file = at.file;
    last = now();
    std::cerr << line_of(at) << std::endl;
  };
}

}  // namespace trireme::trainer
