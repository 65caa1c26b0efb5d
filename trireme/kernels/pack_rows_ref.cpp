// Packing and unpacking byte by byte.
#include "trireme/kernels/pack_rows.h"

namespace trireme::kernels {

void pack_rows_ref(const void* padded, int64_t, const int64_t* index, void* packed, int64_t rows, int64_t row_bytes) {
  for (int64_t i = 0; i < rows * row_bytes; ++i)
    static_cast<char*>(packed)[i] = static_cast<const char*>(padded)[index[i / row_bytes] * row_bytes + i % row_bytes];
}

void unpack_rows_ref(const void* packed, const int64_t* index, int64_t rows, void* padded, int64_t padded_rows,
                     int64_t row_bytes) {
  for (int64_t i = 0; i < padded_rows * row_bytes; ++i) static_cast<char*>(padded)[i] = 0;
  for (int64_t i = 0; i < rows * row_bytes; ++i)
    static_cast<char*>(padded)[index[i / row_bytes] * row_bytes + i % row_bytes] = static_cast<const char*>(packed)[i];
}

}  // namespace trireme::kernels
