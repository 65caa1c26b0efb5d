// A point in time by which something must have happened. Every wait in the project takes one.
#pragma once

#include <algorithm>
#include <chrono>

namespace trireme {

class Deadline {
 public:
  using Clock = std::chrono::steady_clock;

  static Deadline never() { return Deadline(Clock::time_point::max()); }
  static Deadline after(std::chrono::milliseconds timeout) {
    const auto now = Clock::now();
    const auto most = std::chrono::floor<std::chrono::milliseconds>(Clock::time_point::max() - now);
    return timeout < most ? Deadline(now + timeout) : never();
  }

  bool is_never() const { return at_ == Clock::time_point::max(); }
  bool passed() const { return !is_never() && Clock::now() >= at_; }

  // Milliseconds left, rounded up and within [0, cap]: what poll() takes.
  int left_ms(int cap) const {
    if (is_never()) return cap;
    auto left = std::chrono::ceil<std::chrono::milliseconds>(at_ - Clock::now()).count();
    return static_cast<int>(std::clamp<long long>(left, 0, cap));
  }

  static Deadline earlier(Deadline a, Deadline b) { return Deadline(std::min(a.at_, b.at_)); }

 private:
  explicit Deadline(Clock::time_point at) : at_(at) {}
  Clock::time_point at_;
};

}  // namespace trireme
