// The masks of dropout.h for 128 columns at a time, which is what 16 counters give. Counter i serves, with word w and half
// h, column 32 w + 16 h + i: neighbouring lanes are neighbouring counters, and nothing is shuffled. The map is the same for
// every number of lanes.

constexpr int kDropoutColumns = 128;

// For a row and 128 columns from a multiple of 128 on: their random bits.
struct RandomBits {
  Words words[4][16 / kLanes];
};

template <size_t... i>
TRIREME_INLINE Vec<uint64_t> even_numbers(std::index_sequence<i...>) {
  return Vec<uint64_t>{2 * i...};
}

TRIREME_INLINE RandomBits random_bits(uint64_t seed, uint32_t stream, uint32_t row, uint32_t column) {
  // Even and odd counters apart, each in a 64-bit lane whose upper half is whatever multiplying left there: the
  // multiplications look at the lower halves alone.
  using Wide = Vec<uint64_t>;
  constexpr Wide kMultiplier0 = Wide{} + 0xD2511F53u, kMultiplier1 = Wide{} + 0xCD9E8D57u;
  constexpr int kWideLanes = kLanes / 2, kRounds = 7;
  RandomBits bits;
  for (int part = 0; part < 16 / kLanes; ++part) {
    Wide finished[2][4];
    for (int odd = 0; odd < 2; ++odd) {
      Wide c0 = even_numbers(std::make_index_sequence<kWideLanes>()) + (column / 8 + part * kLanes + odd);
      Wide c1 = Wide{} + row, c2 = Wide{} + stream, c3 = Wide{};
      uint32_t key0 = static_cast<uint32_t>(seed), key1 = static_cast<uint32_t>(seed >> 32);
#pragma GCC unroll 7
      for (int round = 0; round < kRounds; ++round) {
        Wide product0 = multiply_lower(c0, kMultiplier0), product1 = multiply_lower(c2, kMultiplier1);
        c0 = (product1 >> 32) ^ c1 ^ key0;
        c2 = (product0 >> 32) ^ c3 ^ key1;
        c1 = product1;
        c3 = product0;
        key0 += 0x9E3779B9u;
        key1 += 0xBB67AE85u;
      }
      finished[odd][0] = c0, finished[odd][1] = c1, finished[odd][2] = c2, finished[odd][3] = c3;
    }
    for (int w = 0; w < 4; ++w) bits.words[w][part] = (Words)((finished[0][w] & 0xffffffffu) | (finished[1][w] << 32));
  }
  return bits;
}

// x scaled where it is kept and 0 elsewhere, for the kLanes columns that begin at `column` of the 128.
TRIREME_INLINE Floats keep(const RandomBits& bits, int column, uint32_t threshold, Floats scaled) {
  Words word = bits.words[column / 32][column % 16 / kLanes];
  Words sixteen = column / 16 % 2 == 0 ? word & 0xffffu : word >> 16;
  return sixteen >= threshold ? scaled : Floats{};
}
