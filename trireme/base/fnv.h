// FNV-1a, of 64-bit words instead of bytes, folded: some GB a second. For numbers that ranks compare and files keep: unlike std::hash's,
// they are the same in every build.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace trireme {

class Fnv {
 public:
  void mix(uint64_t word) {
    hash_ = (hash_ ^ word) * 0x100000001b3;
    hash_ ^= hash_ >> 32;
  }
  void mix(const void* data, size_t bytes) {
    for (size_t at = 0; at < bytes; at += sizeof(uint64_t)) {
      uint64_t word = 0;
      std::memcpy(&word, static_cast<const char*>(data) + at, std::min(sizeof word, bytes - at));
      mix(word);
    }
  }
  uint64_t value() const { return hash_; }

 private:
  uint64_t hash_ = 0xcbf29ce484222325;
};

}  // namespace trireme
