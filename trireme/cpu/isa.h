// Which vector instructions this process may use. One level is chosen per process, capped by TRIREME_MAX_ISA.
#pragma once

#include <span>
#include <string_view>

namespace trireme::cpu {

enum class Isa { scalar, avx2, avx512 };

Isa detected_isa();                  // what the CPU and the kernel offer
Isa isa();                           // min(detected, TRIREME_MAX_ISA); fixed at the first call unless overridden
std::span<const Isa> isa_levels();   // every level this CPU can run, lowest first: what tests iterate over
std::string_view name_of(Isa level);

// Tests only: run the code in scope at a given level.
class ScopedIsa {
 public:
  explicit ScopedIsa(Isa level);
  ~ScopedIsa();
  ScopedIsa(const ScopedIsa&) = delete;

 private:
  Isa previous_;
};

}  // namespace trireme::cpu
