// Between padded and packed batches: rows of [B, S, H], of which only some are tokens, and rows of [T, H], all of them
// tokens. Copies of bytes, whatever the elements are; each of the two is the other's backward pass.
#pragma once

#include <cstdint>

namespace trireme::kernels {

// packed[t] = padded[index[t]] for t in [0, rows). InvalidArgument for an index outside of [0, padded_rows); nothing is
// written then.
void pack_rows(const void* padded, int64_t padded_rows, const int64_t* index, void* packed, int64_t rows, int64_t row_bytes);

// padded[index[t]] = packed[t] for t in [0, rows), and 0 in all other rows. One pass over `padded`, so index must ascend, as
// it does where it lists a batch's tokens: InvalidArgument where it does not or leaves [0, padded_rows); nothing is written
// then.
void unpack_rows(const void* packed, const int64_t* index, int64_t rows, void* padded, int64_t padded_rows,
                 int64_t row_bytes);

void pack_rows_ref(const void* padded, int64_t padded_rows, const int64_t* index, void* packed, int64_t rows,
                   int64_t row_bytes);
void unpack_rows_ref(const void* packed, const int64_t* index, int64_t rows, void* padded, int64_t padded_rows,
                     int64_t row_bytes);

}  // namespace trireme::kernels
