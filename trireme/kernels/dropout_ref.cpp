// Philox4x32-7 as its authors write it, and dropout one element at a time.
#include "trireme/kernels/dropout.h"

namespace trireme::kernels {

bool keeps_ref(const Dropout& dropout, uint32_t stream, uint32_t row, uint32_t column) {
  uint32_t within = column % 128;
  uint32_t counter[4] = {column / 128 * 16 + within % 16, row, stream, 0};
  uint32_t key[2] = {static_cast<uint32_t>(dropout.seed), static_cast<uint32_t>(dropout.seed >> 32)};
  for (int round = 0; round < 7; ++round) {
    uint64_t product0 = uint64_t{0xD2511F53u} * counter[0], product1 = uint64_t{0xCD9E8D57u} * counter[2];
    uint32_t next[4] = {static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(product1),
                        static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(product0)};
    for (int i = 0; i < 4; ++i) counter[i] = next[i];
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  uint32_t word = counter[within / 32];
  uint32_t sixteen = within / 16 % 2 == 0 ? word & 0xffff : word >> 16;
  return sixteen >= dropout.threshold;
}

void dropout_ref(const float* x, float* y, int64_t rows, int64_t columns, const Dropout& dropout) {
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t column = 0; column < columns; ++column) {
      int64_t i = row * columns + column;
      bool kept = keeps_ref(dropout, 0, static_cast<uint32_t>(row), static_cast<uint32_t>(column));
      y[i] = kept ? x[i] * dropout.scale : 0;
    }
}

}  // namespace trireme::kernels
