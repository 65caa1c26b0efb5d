// The two futex calls the library sleeps with. Each sleeper waits with its own bits; a waker names the bits it means.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <climits>
#include <cstdint>
#include <ctime>

namespace trireme::ccl {

// Returns when woken, when `word` no longer holds `expected`, or after `timeout`.
inline void futex_wait(std::atomic<uint32_t>& word, uint32_t expected, uint32_t bits, std::chrono::microseconds timeout) {
  timespec until{};
  clock_gettime(CLOCK_MONOTONIC, &until);
  long long nanoseconds = until.tv_nsec + std::chrono::nanoseconds(timeout).count();
  until.tv_sec += nanoseconds / 1'000'000'000;
  until.tv_nsec = nanoseconds % 1'000'000'000;
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAIT_BITSET, expected, &until, nullptr, bits);
}

inline void futex_wake(std::atomic<uint32_t>& word, uint32_t bits) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAKE_BITSET, INT_MAX, nullptr, nullptr, bits);
}

}  // namespace trireme::ccl
