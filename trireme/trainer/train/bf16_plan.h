// What --bf16 means on this CPU. Asking for it never makes a run slower: where torch's bf16 matrix products are slower than
// fp32's, as they are by far without instructions for them, the run computes in fp32.
#pragma once

#include <string>

namespace trireme::trainer {

struct Bf16Plan {
  bool native = false;   // matrix products in bf16; else in fp32
  std::string sentence;  // what was chosen and why, on this rank
};

// By TRIREME_BF16, TRIREME_MAX_ISA and the CPU's own word, which a child process tries: virtual machines are known that
// offer AMX and end a process that uses it with an illegal instruction. It forks: to be called before torch has started
// threads.
Bf16Plan bf16_plan();

}  // namespace trireme::trainer
