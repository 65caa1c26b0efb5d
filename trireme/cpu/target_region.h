// Code for one ISA level: functions between TRIREME_BEGIN_<LEVEL> and TRIREME_END_TARGET are compiled for that level, the
// rest of the file for the baseline. Include nothing in between: an inline function of a shared header would be compiled for
// the level too, and the linker may keep that copy for callers on every CPU. Keep the functions in an unnamed namespace for
// the same reason, and use no lambdas: on g++ 12 they do not inherit the level.
#pragma once

#define TRIREME_TARGET_AVX2 "avx2,fma,f16c"
#define TRIREME_TARGET_AVX512 "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl"

#define TRIREME_PRAGMA(text) _Pragma(#text)
#if defined(__clang__)
#define TRIREME_BEGIN_TARGET(level) \
  TRIREME_PRAGMA(clang attribute push(__attribute__((target(level))), apply_to = function))
#define TRIREME_END_TARGET _Pragma("clang attribute pop")
#else
#define TRIREME_BEGIN_TARGET(level) _Pragma("GCC push_options") TRIREME_PRAGMA(GCC target(level))
#define TRIREME_END_TARGET _Pragma("GCC pop_options")
#endif

#define TRIREME_BEGIN_AVX2 TRIREME_BEGIN_TARGET(TRIREME_TARGET_AVX2)
#define TRIREME_BEGIN_AVX512 TRIREME_BEGIN_TARGET(TRIREME_TARGET_AVX512)
