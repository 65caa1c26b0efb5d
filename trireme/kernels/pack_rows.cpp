// No body per ISA level: memcpy and memset choose their own instructions.
#include "trireme/kernels/pack_rows.h"

#include <cstring>

#include "trireme/base/error.h"
#include "trireme/kernels/rows.h"

namespace trireme::kernels {

namespace {

constexpr int64_t kGrainBytes = 64 << 10;

int64_t grain(int64_t row_bytes) { return kGrainBytes / std::max<int64_t>(row_bytes, 1) + 1; }

void check_sizes(const char* kernel, int64_t padded_rows, int64_t rows, int64_t row_bytes) {
  if (padded_rows < 0 || rows < 0 || row_bytes < 0)
    throw InvalidArgument(
        str(kernel, ": ", rows, " of ", padded_rows, " rows of ", row_bytes, " bytes; no number may be negative"));
}

void check_index(const char* kernel, const int64_t* index, int64_t t, int64_t padded_rows) {
  if (index[t] < 0 || index[t] >= padded_rows)
    throw InvalidArgument(str(kernel, ": index ", t, " is ", index[t], "; the padded batch has ", padded_rows, " rows"));
}

}  // namespace

void pack_rows(const void* padded, int64_t padded_rows, const int64_t* index, void* packed, int64_t rows,
               int64_t row_bytes) {
  check_sizes("pack_rows", padded_rows, rows, row_bytes);
  for (int64_t t = 0; t < rows; ++t) check_index("pack_rows", index, t, padded_rows);
  if (row_bytes == 0) return;  // buffers may be null, which memcpy and memset must not see
  auto from = static_cast<const char*>(padded);
  auto to = static_cast<char*>(packed);
  parallel_for(rows, grain(row_bytes), [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) std::memcpy(to + t * row_bytes, from + index[t] * row_bytes, row_bytes);
  });
}

void unpack_rows(const void* packed, const int64_t* index, int64_t rows, void* padded, int64_t padded_rows,
                 int64_t row_bytes) {
  check_sizes("unpack_rows", padded_rows, rows, row_bytes);
  for (int64_t t = 0; t < rows; ++t) {
    check_index("unpack_rows", index, t, padded_rows);
    if (t > 0 && index[t] <= index[t - 1])
      throw InvalidArgument(str("unpack_rows: index ", t, " is ", index[t], " after ", index[t - 1], "; it must ascend"));
  }
  if (row_bytes == 0) return;
  auto from = static_cast<const char*>(packed);
  auto to = static_cast<char*>(padded);
  // Between two tokens everything is zeroed at once: padding lies together.
  parallel_for(padded_rows, grain(row_bytes), [&](int64_t begin, int64_t end) {
    int64_t at = begin;
    for (int64_t t = std::lower_bound(index, index + rows, begin) - index; t < rows && index[t] < end; ++t) {
      if (at < index[t]) std::memset(to + at * row_bytes, 0, (index[t] - at) * row_bytes);
      std::memcpy(to + index[t] * row_bytes, from + t * row_bytes, row_bytes);
      at = index[t] + 1;
    }
    std::memset(to + at * row_bytes, 0, (end - at) * row_bytes);
  });
}

}  // namespace trireme::kernels
