// Speed of packing and unpacking a batch of 12 x 384 rows, of which 42 % are tokens, as in SQuAD. The copies are libc's: one
// level.
#include "trireme/kernels/pack_rows.h"
#include "trireme/kernels/row_bench.h"

namespace trireme::kernels {
namespace {

constexpr int64_t kSequences = 12, kPadded = 384, kLength = 161;

void run(benchmark::State& state, int64_t row_bytes, bool unpack) {
  std::vector<int64_t> index;
  for (int64_t b = 0; b < kSequences; ++b)
    for (int64_t i = 0; i < kLength; ++i) index.push_back(b * kPadded + i);
  const int64_t rows = static_cast<int64_t>(index.size()), padded_rows = kSequences * kPadded;
  std::vector<char> padded(padded_rows * row_bytes, 1), packed(rows * row_bytes, 2), expected_padded(padded),
      expected_packed(packed);
  if (unpack)
    unpack_rows_ref(packed.data(), index.data(), rows, expected_padded.data(), padded_rows, row_bytes);
  else
    pack_rows_ref(padded.data(), padded_rows, index.data(), expected_packed.data(), rows, row_bytes);
  measure(
      state, (unpack ? rows + padded_rows : 2 * rows) * row_bytes,
      [&] {
        if (unpack)
          unpack_rows(packed.data(), index.data(), rows, padded.data(), padded_rows, row_bytes);
        else
          pack_rows(padded.data(), padded_rows, index.data(), packed.data(), rows, row_bytes);
      },
      [&] { return padded == expected_padded && packed == expected_packed; });
}

const bool registered = [] {
  for (int64_t H : {384, 1024})
    for (bool unpack : {false, true})
      benchmark::RegisterBenchmark(((unpack ? "unpack_rows/float32/" : "pack_rows/float32/") + std::to_string(H)).c_str(),
                                   [=](benchmark::State& state) { run(state, H * 4, unpack); })
          ->UseRealTime();
  return true;
}();

}  // namespace
}  // namespace trireme::kernels
