#include "trireme/ccl/algorithms/copy.h"

#include <cstdint>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace trireme::ccl {
namespace {

#if defined(__SSE2__)
// Lines that are written whole by streaming stores are not read first. SSE2 suffices: the stores meet in a line-sized buffer.
void copy_around_cache(std::byte* to, const std::byte* from, size_t bytes) {
  constexpr size_t kLine = 64;
  size_t head = (kLine - reinterpret_cast<uintptr_t>(to) % kLine) % kLine;
  head = head < bytes ? head : bytes;
  std::memcpy(to, from, head);
  size_t lines = (bytes - head) / kLine;
  to += head;
  from += head;
  for (size_t line = 0; line < lines; ++line, to += kLine, from += kLine) {
    _mm_prefetch(reinterpret_cast<const char*>(from) + 16 * kLine, _MM_HINT_T0);
    for (size_t at = 0; at < kLine; at += sizeof(__m128i)) {
      _mm_stream_si128(reinterpret_cast<__m128i*>(to + at), _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + at)));
    }
  }
  std::memcpy(to, from, bytes - head - lines * kLine);
  _mm_sfence();
}

void copy_by_vectors(std::byte* to, const std::byte* from, size_t bytes) {
  constexpr size_t kStep = 128, kVectors = kStep / sizeof(__m128i);
  for (; bytes >= kStep; to += kStep, from += kStep, bytes -= kStep) {
    __m128i vectors[kVectors];
    for (size_t i = 0; i < kVectors; ++i) vectors[i] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from) + i);
    for (size_t i = 0; i < kVectors; ++i) _mm_storeu_si128(reinterpret_cast<__m128i*>(to) + i, vectors[i]);
  }
  std::memcpy(to, from, bytes);
}
#endif

}  // namespace

void copy_around_caches(void* to, const void* from, size_t bytes) {
  if (bytes == 0) return;  // then it may be null
#if defined(__SSE2__)
  copy_around_cache(static_cast<std::byte*>(to), static_cast<const std::byte*>(from), bytes);
#else
  std::memcpy(to, from, bytes);
#endif
}

void copy_in_registers(void* to, const void* from, size_t bytes) {
  if (bytes == 0) return;  // then it may be null
#if defined(__SSE2__)
  copy_by_vectors(static_cast<std::byte*>(to), static_cast<const std::byte*>(from), bytes);
#else
  std::memcpy(to, from, bytes);
#endif
}

void copy_own(void* to, const void* from, size_t bytes, size_t whole) {
  if (bytes == 0 || to == from) return;
  if (whole >= kCopyAroundCache && bytes >= 4096) copy_around_caches(to, from, bytes);
  else copy_in_registers(to, from, bytes);
}

}  // namespace trireme::ccl
