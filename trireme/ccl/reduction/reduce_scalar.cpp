// The reduction for any x86-64: vectors of 16 bytes, fp16 by integer arithmetic, no streaming stores.
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "trireme/base/float16.h"
#include "trireme/ccl/reduction/reduce_kernels.h"
#include "trireme/cpu/vector_types.h"

namespace trireme::ccl {

namespace {

constexpr size_t kVectorBytes = 16;

template <class T>
using Vec = VectorOf<T, kVectorBytes>;
using HalfVector = VectorOf<uint16_t, kVectorBytes / 2>;

Vec<uint32_t> zero_extend(HalfVector x) { return __builtin_convertvector(x, Vec<uint32_t>); }

Vec<float> widen(HalfVector x) {
  Vec<float> wide;
  for (size_t i = 0; i < kVectorBytes / sizeof(float); ++i) wide[i] = to_float(float16{x[i]});
  return wide;
}

HalfVector narrow(Vec<float> x) {
  HalfVector half;
  for (size_t i = 0; i < kVectorBytes / sizeof(float); ++i) half[i] = to_float16(x[i]).bits;
  return half;
}

template <class V>
void stream(V x, char* to) {
  __builtin_memcpy(to, &x, sizeof x);
}

void stream_fence() {}

#include "trireme/ccl/reduction/reduce-inl.h"

}  // namespace

void reduce_scalar(const ReduceCall& call) { reduce_at_this_level(call); }

}  // namespace trireme::ccl
