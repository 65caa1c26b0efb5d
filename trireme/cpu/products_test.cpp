#include "trireme/cpu/products.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include "trireme/base/error.h"
#include "trireme/cpu/isa.h"

namespace trireme::cpu {
namespace {

// The choice is made once: each in a process of its own.
void print_choice(const char* choice, const char* cap) {
  setenv("TRIREME_MATMUL", choice, 1);
  setenv("TRIREME_MAX_ISA", cap, 1);
  try {
    std::fputs(prefers_own_products() ? "own" : "torch's", stderr);
  } catch (const InvalidArgument& error) {
    std::fputs(error.what(), stderr);
  }
  std::exit(0);
}

TEST(ProductsDeathTest, TheVariableChooses) {
  EXPECT_EXIT(print_choice("trireme", "scalar"), testing::ExitedWithCode(0), "^own$");
  EXPECT_EXIT(print_choice("torch", "avx512"), testing::ExitedWithCode(0), "^torch's$");
  EXPECT_EXIT(print_choice("mkl", "avx512"), testing::ExitedWithCode(0), "TRIREME_MATMUL=mkl: expected auto.trireme.torch");
}

TEST(ProductsDeathTest, ByDefaultTheyAreOursOnAmdWithAvx512) {
  const bool ours = __builtin_cpu_is("amd") && detected_isa() == Isa::avx512;
  EXPECT_EXIT(print_choice("auto", "avx512"), testing::ExitedWithCode(0), ours ? "^own$" : "^torch's$");
  EXPECT_EXIT(print_choice("auto", "avx2"), testing::ExitedWithCode(0), "^torch's$");
}

}  // namespace
}  // namespace trireme::cpu
