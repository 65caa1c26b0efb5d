#include "trireme/cpu/features.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>

namespace trireme::cpu {
namespace {

// The value of the first line of /proc/cpuinfo with this name.
std::string cpuinfo(const std::string& name) {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with(name) && line.find(": ") != std::string::npos) return line.substr(line.find(": ") + 2);
  return "";
}

bool has_flag(const std::string& wanted) {
  std::istringstream flags(cpuinfo("flags"));
  for (std::string flag; flags >> flag;)
    if (flag == wanted) return true;
  return false;
}

TEST(Features, AreWhatTheKernelSees) {
  if (cpuinfo("flags").empty()) GTEST_SKIP() << "/proc/cpuinfo has no flags here";
  const Features features = read_features();
  EXPECT_EQ(features.avx512_bf16, has_flag("avx512_bf16"));
  EXPECT_EQ(features.amx_bf16, has_flag("amx_bf16"));
  EXPECT_TRUE(features.amx_bf16 || !features.amx_is_permitted);
  EXPECT_FALSE(features.model.empty());
}

}  // namespace
}  // namespace trireme::cpu
