// SHA-1 (FIPS 180-4), by which git names its files: it tells a damaged download, and protects from nobody.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace trireme::trainer {

class Sha1 {
 public:
  using Digest = std::array<uint8_t, 20>;

  void update(const void* data, size_t bytes);
  // Ends the message: the object is of no further use.
  Digest finish();

 private:
  void compress();

  std::array<uint32_t, 5> state_ = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0};
  std::array<uint8_t, 64> block_{};
  size_t in_block_ = 0;
  uint64_t total_bytes_ = 0;
};

}  // namespace trireme::trainer
