#include "trireme/ccl/algorithms/copy.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

#include "trireme/cpu/isa.h"
#include "trireme/cpu/target_region.h"

namespace trireme::ccl {

#if defined(__SSE2__)
TRIREME_BEGIN_AVX512
namespace {

constexpr size_t kLinesAtOnce = 4;

// A store of a whole line need not fetch what the line held: a quarter to a third less time than with narrower ones (docs/decisions/2026-11-18-whole-lines.md).
// `to` begins a line; returns how many bytes are left.
size_t copy_whole_lines(std::byte* to, const std::byte* from, size_t bytes) {
  constexpr size_t kStep = kLinesAtOnce * sizeof(__m512i);
  for (; bytes >= kStep; to += kStep, from += kStep, bytes -= kStep) {
    __m512i lines[kLinesAtOnce];
    for (size_t i = 0; i < kLinesAtOnce; ++i) lines[i] = _mm512_loadu_si512(from + i * sizeof(__m512i));
    for (size_t i = 0; i < kLinesAtOnce; ++i) _mm512_store_si512(to + i * sizeof(__m512i), lines[i]);
  }
  return bytes;
}

// The same, to two places, of which `to` begins a line.
size_t copy_whole_lines_twice(std::byte* to, std::byte* also, const std::byte* from, size_t bytes) {
  constexpr size_t kStep = kLinesAtOnce * sizeof(__m512i);
  for (; bytes >= kStep; to += kStep, also += kStep, from += kStep, bytes -= kStep) {
    __m512i lines[kLinesAtOnce];
    for (size_t i = 0; i < kLinesAtOnce; ++i) lines[i] = _mm512_loadu_si512(from + i * sizeof(__m512i));
    for (size_t i = 0; i < kLinesAtOnce; ++i) _mm512_store_si512(to + i * sizeof(__m512i), lines[i]);
    for (size_t i = 0; i < kLinesAtOnce; ++i) _mm512_storeu_si512(also + i * sizeof(__m512i), lines[i]);
  }
  return bytes;
}

}  // namespace
TRIREME_END_TARGET
#endif

namespace {

#if defined(__SSE2__)
constexpr size_t kLine = 64;

// How many bytes lie before the first line that `to` begins.
size_t bytes_to_line(const std::byte* to, size_t bytes) { return std::min(bytes, (kLine - reinterpret_cast<uintptr_t>(to) % kLine) % kLine); }

// Lines that are written whole by streaming stores are not read first. SSE2 suffices: the stores meet in a line-sized buffer.
void copy_around_cache(std::byte* to, const std::byte* from, size_t bytes) {
  size_t head = bytes_to_line(to, bytes);
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

void copy_by_lines(std::byte* to, const std::byte* from, size_t bytes) {
  size_t head = bytes_to_line(to, bytes);
  std::memcpy(to, from, head);
  size_t rest = copy_whole_lines(to + head, from + head, bytes - head);
  std::memcpy(to + bytes - rest, from + bytes - rest, rest);
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
  if (cpu::isa() == cpu::Isa::avx512) copy_by_lines(static_cast<std::byte*>(to), static_cast<const std::byte*>(from), bytes);
  else copy_by_vectors(static_cast<std::byte*>(to), static_cast<const std::byte*>(from), bytes);
#else
  std::memcpy(to, from, bytes);
#endif
}

void copy_twice_in_registers(void* to, void* also, const void* from, size_t bytes) {
#if defined(__SSE2__)
  auto *first = static_cast<std::byte*>(to), *second = static_cast<std::byte*>(also);
  auto* source = static_cast<const std::byte*>(from);
  if (bytes != 0 && cpu::isa() == cpu::Isa::avx512) {
    const size_t head = bytes_to_line(first, bytes);
    const size_t rest = copy_whole_lines_twice(first + head, second + head, source + head, bytes - head);
    for (std::byte* place : {first, second}) {
      std::memcpy(place, source, head);
      std::memcpy(place + bytes - rest, source + bytes - rest, rest);
    }
    return;
  }
#endif
  copy_in_registers(to, from, bytes);
  copy_in_registers(also, from, bytes);
}

void copy_own(void* to, const void* from, size_t bytes, size_t whole) {
  if (bytes == 0 || to == from) return;
  if (whole >= kCopyAroundCache && bytes >= 4096) copy_around_caches(to, from, bytes);
  else copy_in_registers(to, from, bytes);
}

}  // namespace trireme::ccl
