#include "trireme/cpu/features.h"

#include <asm/prctl.h>
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>

#include "trireme/cpu/isa.h"

#ifndef ARCH_GET_XCOMP_SUPP
#define ARCH_GET_XCOMP_SUPP 0x1021  // headers older than Linux 5.16
#endif

namespace trireme::cpu {
namespace {

constexpr unsigned kAvx512Bf16 = 1u << 5;          // leaf 7.1, EAX
constexpr unsigned kAmxBf16 = 1u << 22;            // leaf 7.0, EDX
constexpr unsigned kAmxTile = 1u << 24;            // leaf 7.0, EDX
constexpr uint64_t kTileData = uint64_t{1} << 18;  // XCR0's bit for the tiles

struct Registers {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
};

Registers leaf(unsigned number, unsigned part = 0) {
  Registers r;
  if (!__get_cpuid_count(number, part, &r.eax, &r.ebx, &r.ecx, &r.edx)) return {};
  return r;
}

// Three leaves of 16 characters, padded with blanks or zeros.
std::string model_name() {
  char text[49] = {};
  for (unsigned i = 0; i < 3; ++i) {
    const Registers r = leaf(0x80000002 + i);
    std::memcpy(text + 16 * i, &r, sizeof r);
  }
  const std::string name = text;
  const size_t begin = name.find_first_not_of(' '), end = name.find_last_not_of(' ');
  return begin == std::string::npos ? "unknown" : name.substr(begin, end - begin + 1);
}

// The tiles are 8 KiB a thread: the kernel saves them only for processes that ask, and tells whether it would.
bool kernel_has_tiles() {
  uint64_t supported = 0;
  return ::syscall(SYS_arch_prctl, ARCH_GET_XCOMP_SUPP, &supported) == 0 && (supported & kTileData) != 0;
}

}  // namespace

Features read_features() {
  Features features;
  features.model = model_name();
  // The kernel's part of AVX512-BF16, saved registers, is that of AVX-512.
  features.avx512_bf16 = (leaf(7, 1).eax & kAvx512Bf16) != 0 && detected_isa() == Isa::avx512;
  features.amx_bf16 = (leaf(7).edx & (kAmxBf16 | kAmxTile)) == (kAmxBf16 | kAmxTile);
  features.amx_is_permitted = features.amx_bf16 && kernel_has_tiles();
  return features;
}

}  // namespace trireme::cpu
