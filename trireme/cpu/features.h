// What this CPU is, and which of the instructions that only matrix products use it has. What our own kernels use is in
// isa.h.
#pragma once

#include <string>

namespace trireme::cpu {

struct Features {
  std::string model;  // the CPU's own words: "Intel(R) Xeon(R) Platinum 8480+"
  bool avx512_bf16 = false;
  bool amx_bf16 = false;          // the CPU has it
  bool amx_is_permitted = false;  // and the kernel lets a process ask for its registers
};

// Reads the CPU and asks the kernel; nothing is changed.
Features read_features();

}  // namespace trireme::cpu
