#include "trireme/kernels/dropout.h"

#include <immintrin.h>

#include <cmath>
#include <cstring>

#include "trireme/base/error.h"
#include "trireme/cpu/isa.h"
#include "trireme/cpu/target_region.h"
#include "trireme/cpu/vector_types.h"
#include "trireme/kernels/parallel.h"

namespace trireme::kernels {

#define TRIREME_BODY "trireme/kernels/dropout-inl.h"
#include "trireme/kernels/foreach_isa.h"

namespace {

constexpr int64_t kGrainElements = 16 << 10;

template <class T>
void dropout_any(const T* x, T* y, int64_t rows, int64_t columns, const Dropout& dropout) {
  if (!dropout.active()) {
    if (x != y) std::memcpy(y, x, rows * columns * sizeof(T));
    return;
  }
  auto part = TRIREME_AT_LEVEL(dropout_rows<T>);
  parallel_for(rows, kGrainElements / std::max<int64_t>(columns, 1) + 1,
               [&](int64_t begin, int64_t end) { part(x, y, begin, end, columns, dropout); });
}

}  // namespace

Dropout make_dropout(double p, uint64_t seed) {
  if (!(p >= 0 && p <= 1)) throw InvalidArgument(str("dropout: the probability is ", p, "; it must lie between 0 and 1"));
  uint32_t threshold = static_cast<uint32_t>(std::lround(p * 65536));
  if (p > 0 && threshold == 0) threshold = 1;
  if (p < 1 && threshold == 65536) threshold = 65535;
  return {seed, threshold, threshold == 65536 ? 0.0f : 65536.0f / static_cast<float>(65536 - threshold)};
}

void dropout(const float* x, float* y, int64_t rows, int64_t columns, const Dropout& dropout) {
  dropout_any(x, y, rows, columns, dropout);
}

void dropout(const bfloat16* x, bfloat16* y, int64_t rows, int64_t columns, const Dropout& dropout) {
  dropout_any(x, y, rows, columns, dropout);
}

}  // namespace trireme::kernels
