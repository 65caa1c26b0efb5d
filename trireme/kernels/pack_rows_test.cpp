#include "trireme/kernels/pack_rows.h"

#include "trireme/base/error.h"
#include "trireme/kernels/row_test.h"

namespace trireme::kernels {
namespace {

// Each row is a token with this probability; the same rows every time.
std::vector<int64_t> some_rows(int64_t padded_rows, double probability) {
  std::mt19937 generator(1);
  std::bernoulli_distribution token(probability);
  std::vector<int64_t> index;
  for (int64_t row = 0; row < padded_rows; ++row)
    if (token(generator)) index.push_back(row);
  return index;
}

std::vector<char> random_bytes(int64_t n) {
  std::mt19937 generator(2);
  std::vector<char> bytes(n);
  for (char& each : bytes) each = static_cast<char>(generator());
  return bytes;
}

TEST(PackRows, AgreesWithReference) {
  for (int threads : {1, 2, 3})
    for (int64_t row_bytes : {0, 1, 2, 63, 768, 1536})
      for (int64_t padded_rows : {0, 1, 2, 700})
        for (double probability : {0.0, 0.4, 1.0}) {
          ScopedThreads scope(threads);
          std::vector<int64_t> index = some_rows(padded_rows, probability);
          const int64_t rows = static_cast<int64_t>(index.size());
          std::vector<char> padded = random_bytes(padded_rows * row_bytes), packed(rows * row_bytes, 5),
                            expected_packed(packed);
          pack_rows(padded.data(), padded_rows, index.data(), packed.data(), rows, row_bytes);
          pack_rows_ref(padded.data(), padded_rows, index.data(), expected_packed.data(), rows, row_bytes);
          EXPECT_EQ(packed, expected_packed);
          std::vector<char> unpacked(padded.size(), 5), expected(padded.size());
          unpack_rows(packed.data(), index.data(), rows, unpacked.data(), padded_rows, row_bytes);
          unpack_rows_ref(packed.data(), index.data(), rows, expected.data(), padded_rows, row_bytes);
          EXPECT_EQ(unpacked, expected) << rows << " of " << padded_rows << " rows of " << row_bytes;
        }
}

TEST(PackRows, AnyOrderAndRepeatedRowsCanBePacked) {
  std::vector<int64_t> index = {4, 0, 4, 2};
  std::vector<int32_t> padded = {10, 11, 12, 13, 14}, packed(4);
  pack_rows(padded.data(), 5, index.data(), packed.data(), 4, sizeof(int32_t));
  EXPECT_THAT(packed, testing::ElementsAre(14, 10, 14, 12));
}

TEST(PackRows, RefusesWhatIsOutside) {
  std::vector<char> padded(50, 1), packed(50, 2);
  std::vector<int64_t> outside = {0, 5}, negative = {-1, 2}, falling = {3, 2}, twice = {3, 3};
  EXPECT_THROW(pack_rows(padded.data(), 5, outside.data(), packed.data(), 2, 10), InvalidArgument);
  EXPECT_THROW(pack_rows(padded.data(), 5, negative.data(), packed.data(), 2, 10), InvalidArgument);
  EXPECT_THROW(pack_rows(padded.data(), -5, outside.data(), packed.data(), 0, 10), InvalidArgument);
  for (const std::vector<int64_t>& index : {outside, negative, falling, twice})
    EXPECT_THROW(unpack_rows(packed.data(), index.data(), 2, padded.data(), 5, 10), InvalidArgument);
  EXPECT_THAT(padded, testing::Each(1));
  EXPECT_THAT(packed, testing::Each(2));
}

}  // namespace
}  // namespace trireme::kernels
