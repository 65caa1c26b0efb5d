#include "trireme/cpu/products.h"

#include <string>

#include "trireme/base/env.h"
#include "trireme/cpu/isa.h"

namespace trireme::cpu {

bool prefers_own_products() {
  static const bool preferred = [] {
    const std::string choice = env::text("TRIREME_MATMUL");
    return choice == "auto" ? __builtin_cpu_is("amd") && isa() == Isa::avx512 : choice == "trireme";
  }();
  return preferred;
}

}  // namespace trireme::cpu
