#include "trireme/kernels/bf16.h"

#include <immintrin.h>

#include "trireme/cpu/isa.h"
#include "trireme/cpu/target_region.h"
#include "trireme/cpu/vector_types.h"
#include "trireme/kernels/parallel.h"

namespace trireme::kernels {

#define TRIREME_BODY "trireme/kernels/bf16-inl.h"
#include "trireme/kernels/foreach_isa.h"

namespace {

constexpr int64_t kGrainElements = 64 << 10;
// Below this much, the reader that follows may still find the result in a cache of its own or the one that cores share.
constexpr int64_t kStreamBytes = 16 << 20;

template <class From, class To>
void convert_any(const From* from, To* to, int64_t n) {
  auto part = TRIREME_AT_LEVEL(convert_part<From>);
  bool streaming = n * static_cast<int64_t>(sizeof(To)) >= kStreamBytes;
  parallel_for(n, kGrainElements,
               [&](int64_t begin, int64_t end) { part(from + begin, to + begin, end - begin, streaming); });
}

}  // namespace

void convert(const float* from, bfloat16* to, int64_t n) { convert_any(from, to, n); }
void convert(const bfloat16* from, float* to, int64_t n) { convert_any(from, to, n); }

void split(const float* from, bfloat16* upper, uint16_t* lower, int64_t n) {
  auto part = TRIREME_AT_LEVEL(split_part);
  parallel_for(n, kGrainElements,
               [&](int64_t begin, int64_t end) { part(from + begin, upper + begin, lower + begin, end - begin); });
}

void join(const bfloat16* upper, const uint16_t* lower, float* to, int64_t n) {
  auto part = TRIREME_AT_LEVEL(join_part);
  parallel_for(n, kGrainElements,
               [&](int64_t begin, int64_t end) { part(upper + begin, lower + begin, to + begin, end - begin); });
}

}  // namespace trireme::kernels
