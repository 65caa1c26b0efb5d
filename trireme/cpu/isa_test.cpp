#include "trireme/cpu/isa.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>

#include "trireme/base/error.h"

namespace trireme::cpu {
namespace {

// What the kernel says about the CPU: another source than cpuid, and one that knows what the kernel has switched off.
bool kernel_lists(const std::string& flags_wanted) {
  std::ifstream info("/proc/cpuinfo");
  std::string line;
  while (std::getline(info, line) && !line.starts_with("flags")) {
  }
  std::istringstream wanted(flags_wanted);
  for (std::string flag; wanted >> flag;)
    if ((line + " ").find(" " + flag + " ") == std::string::npos) return false;
  return true;
}

TEST(Isa, DetectionAgreesWithTheKernel) {
  EXPECT_EQ(detected_isa() >= Isa::avx2, kernel_lists("avx2 fma f16c"));
  EXPECT_EQ(detected_isa() >= Isa::avx512, kernel_lists("avx2 fma f16c avx512f avx512bw avx512dq avx512vl"));
}

TEST(Isa, LevelsRiseToTheDetectedOne) {
  ASSERT_FALSE(isa_levels().empty());
  EXPECT_EQ(isa_levels().front(), Isa::scalar);
  EXPECT_EQ(isa_levels().back(), detected_isa());
}

TEST(Isa, AScopeRestoresTheLevel) {
  Isa before = isa();
  {
    ScopedIsa scope(Isa::scalar);
    EXPECT_EQ(isa(), Isa::scalar);
  }
  EXPECT_EQ(isa(), before);
}

TEST(IsaDeathTest, TheEnvironmentCapsTheLevel) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  auto print_level = [](const char* cap) {
    setenv("TRIREME_MAX_ISA", cap, 1);
    try {
      std::cerr << name_of(isa());
    } catch (const InvalidArgument& error) {
      std::cerr << error.what();
    }
    std::exit(0);
  };
  EXPECT_EXIT(print_level("scalar"), testing::ExitedWithCode(0), "^scalar$");
  EXPECT_EXIT(print_level("avx512"), testing::ExitedWithCode(0), "^" + std::string(name_of(detected_isa())) + "$");
  EXPECT_EXIT(print_level("sse9"), testing::ExitedWithCode(0), "^TRIREME_MAX_ISA=sse9: expected scalar.avx2.avx512$");
}

}  // namespace
}  // namespace trireme::cpu
