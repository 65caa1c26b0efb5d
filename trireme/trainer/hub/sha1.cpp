#include "trireme/trainer/hub/sha1.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace trireme::trainer {

void Sha1::compress() {
  std::array<uint32_t, 80> w;
  for (size_t i = 0; i < 16; ++i) {
    w[i] = uint32_t{block_[4 * i]} << 24 | uint32_t{block_[4 * i + 1]} << 16 | uint32_t{block_[4 * i + 2]} << 8 |
           block_[4 * i + 3];
  }
  for (size_t i = 16; i < 80; ++i) w[i] = std::rotl(w[i - 3] ^ w[i - 8] ^ w[i - 14] ^ w[i - 16], 1);

  auto [a, b, c, d, e] = state_;
  for (size_t i = 0; i < 80; ++i) {
    uint32_t f, k;
    if (i < 20) {
      f = (b & c) | (~b & d), k = 0x5a827999;
    } else if (i < 40) {
      f = b ^ c ^ d, k = 0x6ed9eba1;
    } else if (i < 60) {
      f = (b & c) | (b & d) | (c & d), k = 0x8f1bbcdc;
    } else {
      f = b ^ c ^ d, k = 0xca62c1d6;
    }
    const uint32_t next = std::rotl(a, 5) + f + e + k + w[i];
    e = d, d = c, c = std::rotl(b, 30), b = a, a = next;
  }
  const std::array<uint32_t, 5> add = {a, b, c, d, e};
  for (size_t i = 0; i < 5; ++i) state_[i] += add[i];
}

void Sha1::update(const void* data, size_t bytes) {
  auto* p = static_cast<const uint8_t*>(data);
  total_bytes_ += bytes;
  while (bytes > 0) {
    const size_t take = std::min(bytes, block_.size() - in_block_);
    std::memcpy(block_.data() + in_block_, p, take);
    in_block_ += take, p += take, bytes -= take;
    if (in_block_ == block_.size()) {
      compress();
      in_block_ = 0;
    }
  }
}

Sha1::Digest Sha1::finish() {
  const uint64_t message_bits = total_bytes_ * 8;
  // A one bit, zeros up to 56 bytes of a block, then the length.
  constexpr std::array<uint8_t, 64> kPadding = {0x80};
  update(kPadding.data(), in_block_ < 56 ? 56 - in_block_ : 120 - in_block_);
  std::array<uint8_t, 8> length;
  for (size_t i = 0; i < 8; ++i) length[i] = static_cast<uint8_t>(message_bits >> (56 - 8 * i));
  update(length.data(), length.size());

  Digest digest;
  for (size_t i = 0; i < digest.size(); ++i) digest[i] = static_cast<uint8_t>(state_[i / 4] >> (24 - 8 * (i % 4)));
  return digest;
}

}  // namespace trireme::trainer
