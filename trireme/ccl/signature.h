// What all ranks must agree on when they meet in an operation.
#pragma once

#include <cstdint>
#include <string>

#include "trireme/ccl/operation.h"

namespace trireme::ccl {

// Plain bytes: it lies in shared memory and travels in frame headers.
struct Signature {
  uint8_t kind = 0;
  uint8_t type = 0;
  uint8_t reduction = 0;
  uint8_t unused = 0;
  int32_t root = -1;
  uint64_t count = 0;
  uint64_t counts_hash = 0;  // of the per-rank counts, where all ranks pass the same ones

  bool operator==(const Signature&) const = default;
};
static_assert(sizeof(Signature) == 24);

Signature signature_of(const Operation& op);

// "allreduce of 1024 float32 (sum)"; with the root and the per-rank counts where they matter.
std::string describe(const Signature& signature);

// Throws Mismatch: "rank 0: operation #12: rank 0 called ..., rank 3 called ...". The first difference decides the remedy.
[[noreturn]] void throw_mismatch(uint64_t number, int my_rank, const Signature& mine, int other_rank, const Signature& other);

}  // namespace trireme::ccl
