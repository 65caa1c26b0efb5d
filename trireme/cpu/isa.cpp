#include "trireme/cpu/isa.h"

#include <cpuid.h>

#include <algorithm>
#include <atomic>
#include <string>

#include "trireme/base/env.h"
#include "trireme/base/error.h"

namespace trireme::cpu {

namespace {

constexpr Isa kLevels[] = {Isa::scalar, Isa::avx2, Isa::avx512};
constexpr std::string_view kNames[] = {"scalar", "avx2", "avx512"};
constexpr int kUndecided = -1;

std::atomic<int> current{kUndecided};

// Not every compiler knows F16C by name. The kernel's part (saved YMM state) is in __builtin_cpu_supports("avx2").
bool has_f16c() {
  unsigned eax, ebx, ecx, edx;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) && (ecx & bit_F16C);
}

// __builtin_cpu_supports also asks whether the kernel saves the registers (XCR0).
Isa detect() {
  if (!(__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c())) return Isa::scalar;
  bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  return avx512 ? Isa::avx512 : Isa::avx2;
}

Isa from_environment() {
  std::string cap = env::text("TRIREME_MAX_ISA");
  auto level = std::ranges::find(kNames, cap) - std::begin(kNames);
  return std::min(detected_isa(), static_cast<Isa>(level));
}

}  // namespace

Isa detected_isa() {
  static const Isa detected = detect();
  return detected;
}

Isa isa() {
  int level = current.load(std::memory_order_relaxed);
  if (level != kUndecided) return static_cast<Isa>(level);
  // Two threads may both get here first; they find the same level.
  Isa chosen = from_environment();
  current.compare_exchange_strong(level, static_cast<int>(chosen), std::memory_order_relaxed);
  return level == kUndecided ? chosen : static_cast<Isa>(level);
}

std::span<const Isa> isa_levels() { return std::span(kLevels).first(static_cast<size_t>(detected_isa()) + 1); }

std::string_view name_of(Isa level) { return kNames[static_cast<size_t>(level)]; }

ScopedIsa::ScopedIsa(Isa level) : previous_(isa()) {
  TRIREME_ENFORCE(level <= detected_isa(), "this CPU cannot run ", name_of(level));
  current.store(static_cast<int>(level), std::memory_order_relaxed);
}

ScopedIsa::~ScopedIsa() { current.store(static_cast<int>(previous_), std::memory_order_relaxed); }

}  // namespace trireme::cpu
