// SHA-256 (FIPS 180-4) and HMAC-SHA-256 (RFC 2104). They prove knowledge of a job's secret on connections that carry a few
// hundred bytes, so clarity counts here and speed does not; a dependency on a cryptography library would be the larger cost.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace trireme::ccl {

using Digest = std::array<uint8_t, 32>;

class Sha256 {
 public:
  Sha256();
  void update(const void* data, size_t bytes);
  // Ends the message: the object is of no further use.
  Digest finish();

 private:
  void compress(const uint8_t* block);

  std::array<uint32_t, 8> state_;
  std::array<uint8_t, 64> block_{};
  size_t in_block_ = 0;
  uint64_t total_bytes_ = 0;
};

Digest sha256(std::string_view message);
Digest hmac_sha256(std::span<const uint8_t> key, std::string_view message);

// Takes the same time wherever the first difference lies, so that a proof cannot be guessed byte by byte.
bool equal_in_constant_time(std::span<const uint8_t> a, std::span<const uint8_t> b);

}  // namespace trireme::ccl
