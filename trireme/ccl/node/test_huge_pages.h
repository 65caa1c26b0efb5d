// What the kernel says of huge pages, for tests.
#pragma once

#include <cstdint>
#include <cstdio>
#include <fstream>
#include <string>

namespace trireme::ccl {

// How much of the mapping that holds `data` lies in huge pages, as the kernel tells.
inline size_t huge_bytes_at(const void* data) {
  const auto address = reinterpret_cast<uintptr_t>(data);
  std::ifstream smaps("/proc/self/smaps");
  bool inside = false;
  size_t bytes = 0;
  for (std::string line; std::getline(smaps, line);) {
    unsigned long begin = 0, end = 0, kilobytes = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx ", &begin, &end) == 2) inside = begin <= address && address < end;
    else if (inside && std::sscanf(line.c_str(), "AnonHugePages: %lu", &kilobytes) == 1) bytes += kilobytes * 1024;
    else if (inside && std::sscanf(line.c_str(), "ShmemPmdMapped: %lu", &kilobytes) == 1) bytes += kilobytes * 1024;
  }
  return bytes;
}

}  // namespace trireme::ccl
