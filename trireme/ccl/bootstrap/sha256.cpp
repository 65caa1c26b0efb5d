#include "trireme/ccl/bootstrap/sha256.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace trireme::ccl {

namespace {

constexpr size_t kBlockBytes = 64;

// FIPS 180-4, 4.2.2: the fractional parts of the cube roots of the first 64 primes.
constexpr std::array<uint32_t, 64> kRoundConstants = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01,
    0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc,
    0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147,
    0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116, 0x1e376c08,
    0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208,
    0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

uint32_t load_big_endian(const uint8_t* p) {
  return uint32_t{p[0]} << 24 | uint32_t{p[1]} << 16 | uint32_t{p[2]} << 8 | uint32_t{p[3]};
}

void store_big_endian(uint32_t value, uint8_t* p) {
  for (int i = 0; i < 4; ++i) p[i] = static_cast<uint8_t>(value >> (24 - 8 * i));
}

std::array<uint32_t, 64> message_schedule(const uint8_t* block) {
  std::array<uint32_t, 64> w;
  for (size_t i = 0; i < 16; ++i) w[i] = load_big_endian(block + 4 * i);
  for (size_t i = 16; i < 64; ++i) {
    uint32_t s0 = std::rotr(w[i - 15], 7) ^ std::rotr(w[i - 15], 18) ^ (w[i - 15] >> 3);
    uint32_t s1 = std::rotr(w[i - 2], 17) ^ std::rotr(w[i - 2], 19) ^ (w[i - 2] >> 10);
    w[i] = w[i - 16] + s0 + w[i - 7] + s1;
  }
  return w;
}

}  // namespace

Sha256::Sha256() : state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19} {}

void Sha256::compress(const uint8_t* block) {
  const auto w = message_schedule(block);
  auto [a, b, c, d, e, f, g, h] = state_;
  for (size_t i = 0; i < 64; ++i) {
    uint32_t sum1 = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25);
    uint32_t choice = (e & f) ^ (~e & g);
    uint32_t t1 = h + sum1 + choice + kRoundConstants[i] + w[i];
    uint32_t sum0 = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22);
    uint32_t majority = (a & b) ^ (a & c) ^ (b & c);
    uint32_t t2 = sum0 + majority;
    h = g, g = f, f = e, e = d + t1, d = c, c = b, b = a, a = t1 + t2;
  }
  const std::array<uint32_t, 8> add = {a, b, c, d, e, f, g, h};
  for (size_t i = 0; i < 8; ++i) state_[i] += add[i];
}

void Sha256::update(const void* data, size_t bytes) {
  auto* p = static_cast<const uint8_t*>(data);
  total_bytes_ += bytes;
  while (bytes > 0) {
    size_t take = std::min(bytes, kBlockBytes - in_block_);
    std::memcpy(block_.data() + in_block_, p, take);
    in_block_ += take, p += take, bytes -= take;
    if (in_block_ == kBlockBytes) {
      compress(block_.data());
      in_block_ = 0;
    }
  }
}

Digest Sha256::finish() {
  const uint64_t message_bits = total_bytes_ * 8;
  // A one bit, zeros up to 56 bytes of a block, then the length.
  constexpr std::array<uint8_t, kBlockBytes> kPadding = {0x80};
  update(kPadding.data(), in_block_ < 56 ? 56 - in_block_ : 120 - in_block_);
  std::array<uint8_t, 8> length;
  store_big_endian(static_cast<uint32_t>(message_bits >> 32), length.data());
  store_big_endian(static_cast<uint32_t>(message_bits), length.data() + 4);
  update(length.data(), length.size());

  Digest digest;
  for (size_t i = 0; i < 8; ++i) store_big_endian(state_[i], digest.data() + 4 * i);
  return digest;
}

Digest sha256(std::string_view message) {
  Sha256 hash;
  hash.update(message.data(), message.size());
  return hash.finish();
}

Digest hmac_sha256(std::span<const uint8_t> key, std::string_view message) {
  std::array<uint8_t, kBlockBytes> inner_key{}, outer_key{};
  Digest hashed_key;
  if (key.size() > kBlockBytes) {
    hashed_key = sha256({reinterpret_cast<const char*>(key.data()), key.size()});
    key = hashed_key;
  }
  std::copy(key.begin(), key.end(), inner_key.begin());
  outer_key = inner_key;
  for (uint8_t& byte : inner_key) byte ^= 0x36;
  for (uint8_t& byte : outer_key) byte ^= 0x5c;

  Sha256 inner, outer;
  inner.update(inner_key.data(), inner_key.size());
  inner.update(message.data(), message.size());
  const Digest inner_digest = inner.finish();
  outer.update(outer_key.data(), outer_key.size());
  outer.update(inner_digest.data(), inner_digest.size());
  return outer.finish();
}

bool equal_in_constant_time(std::span<const uint8_t> a, std::span<const uint8_t> b) {
  if (a.size() != b.size()) return false;
  volatile uint8_t difference = 0;  // volatile: the compiler must not leave the loop early
  for (size_t i = 0; i < a.size(); ++i) difference = difference | (a[i] ^ b[i]);
  return difference == 0;
}

}  // namespace trireme::ccl
