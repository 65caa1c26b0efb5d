#include "trireme/kernels/fma_peak.h"

#include <immintrin.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "trireme/base/float16.h"
#include "trireme/cpu/isa.h"
#include "trireme/cpu/target_region.h"
#include "trireme/cpu/vector_types.h"
#include "trireme/kernels/parallel.h"

namespace trireme::kernels {

#define TRIREME_BODY "trireme/kernels/fma_peak-inl.h"
#include "trireme/kernels/foreach_isa.h"

double measure_fma_peak(double seconds) {
  using Clock = std::chrono::steady_clock;
  constexpr int64_t kRounds = 100'000;
  auto rounds = TRIREME_AT_LEVEL(fma_rounds);
  std::atomic<int64_t> finished = 0;
  std::atomic<float> result = 0;  // so that the arithmetic is not left out
  const auto begin = Clock::now(),
             end = begin + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
#pragma omp parallel
  while (Clock::now() < end) {
    result = rounds(kRounds);
    finished += kRounds;
  }
  double elapsed = std::chrono::duration<double>(Clock::now() - begin).count();
  return static_cast<double>(finished) * TRIREME_AT_LEVEL(flops_per_round)() / elapsed * 1e-9;
}

}  // namespace trireme::kernels
