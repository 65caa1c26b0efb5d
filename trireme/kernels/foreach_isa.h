// Compiles one body per ISA level. A kernel's file defines TRIREME_BODY as the name of its -inl.h and includes this, once, inside
// namespace trireme::kernels; the functions of the body are then scalar::f, avx2::f and avx512::f, and TRIREME_AT_LEVEL calls the
// one for this process. The body sees the vocabulary of simd-inl.h and whatever was included before; it includes nothing itself
// but other -inl.h files (see trireme/cpu/target_region.h for the reason).
// clang-format off: the order of the includes matters.
#define TRIREME_INLINE [[gnu::always_inline]] inline

namespace scalar {
namespace {
#include "trireme/kernels/simd_scalar-inl.h"
#include "trireme/kernels/simd-inl.h"
#include TRIREME_BODY
}  // namespace
}  // namespace scalar

#if defined(__x86_64__)
TRIREME_BEGIN_AVX2
namespace avx2 {
namespace {
#include "trireme/kernels/simd_avx2-inl.h"
#include "trireme/kernels/simd-inl.h"
#include TRIREME_BODY
}  // namespace
}  // namespace avx2
TRIREME_END_TARGET

TRIREME_BEGIN_AVX512
namespace avx512 {
namespace {
#include "trireme/kernels/simd_avx512-inl.h"
#include "trireme/kernels/simd-inl.h"
#include TRIREME_BODY
}  // namespace
}  // namespace avx512
TRIREME_END_TARGET
#else
namespace avx2 = scalar;
namespace avx512 = scalar;
#endif

// The value of level::function for the level of this process: TRIREME_AT_LEVEL(rows)(call, begin, end).
#define TRIREME_AT_LEVEL(function)                             \
  (::trireme::cpu::isa() == ::trireme::cpu::Isa::avx512 ? avx512::function \
   : ::trireme::cpu::isa() == ::trireme::cpu::Isa::avx2 ? avx2::function   \
                                                        : scalar::function)
