// Independent chains of FMAs in registers: enough of them to cover the latency (4 cycles, 2 ports: 8).
constexpr int kChains = kRegisters == 32 ? 20 : 12;

// 2 kChains kLanes flops a round.
float fma_rounds(int64_t rounds) {
  Floats chain[kChains], factor = broadcast(0.999f), term = broadcast(0.001f);
#pragma GCC unroll 20
  for (int i = 0; i < kChains; ++i) chain[i] = broadcast(static_cast<float>(i));
  for (int64_t round = 0; round < rounds; ++round)
#pragma GCC unroll 20
    for (int i = 0; i < kChains; ++i) chain[i] = fma(chain[i], factor, term);
  Floats total = {};
#pragma GCC unroll 20
  for (int i = 0; i < kChains; ++i) total += chain[i];
  return sum(total);
}

int flops_per_round() { return 2 * kChains * kLanes; }
