// Small matrix products on packed operands in the cache, for attention and matmul: C[M x N] = or += sum over k of
// A[m, k] B[k, n]. A is read one element at a time, by any strides, so that it may be a transpose. B and C have rows of whole
// vectors.
//
// A tile of C stays in registers while k runs. It is R rows by V vectors: R V accumulators must cover the latency of an FMA
// (4 cycles, 2 ports: 8 of them), leave V registers for a row of B and one for an element of A, and R + V loads per R V FMAs
// must stay below 2 a cycle. With 32 registers: 4 x 6, 3 x 8, 2 x 12, 1 x 14 (V x R); with 16: 2 x 6, 1 x 8.

constexpr int kMaxTileVectors = kRegisters == 32 ? 4 : 2;

constexpr int tile_rows(int vectors) {
  if (kRegisters == 32) return vectors == 4 ? 6 : vectors == 3 ? 8 : vectors == 2 ? 12 : 14;
  return vectors == 2 ? 6 : 8;
}

struct Strided {
  const float* data;
  int64_t row, k;  // strides of m and of k
};

template <int kRows, int kVectors, bool accumulate>
TRIREME_INLINE void gemm_tile(Strided a, const float* b, int64_t b_stride, float* c, int64_t c_stride, int64_t depth) {
  Floats sums[kRows][kVectors];
#pragma GCC unroll 16
  for (int m = 0; m < kRows; ++m)
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) sums[m][v] = accumulate ? load(c + m * c_stride + v * kLanes) : Floats{};
  const float* a_k = a.data;
  for (int64_t k = 0; k < depth; ++k) {
    Floats row[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) row[v] = load(b + v * kLanes);
#pragma GCC unroll 16
    for (int m = 0; m < kRows; ++m) {
      Floats element = broadcast(a_k[m * a.row]);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) sums[m][v] = fma(element, row[v], sums[m][v]);
    }
    a_k += a.k;
    b += b_stride;
  }
#pragma GCC unroll 16
  for (int m = 0; m < kRows; ++m)
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) store(c + m * c_stride + v * kLanes, sums[m][v]);
}

// The rows that a whole tile would not fit.
template <int kRows, int kVectors, bool accumulate>
void gemm_last_rows(int64_t rows, Strided a, const float* b, int64_t b_stride, float* c, int64_t c_stride, int64_t depth) {
  if (rows == kRows)
    gemm_tile<kRows, kVectors, accumulate>(a, b, b_stride, c, c_stride, depth);
  else if constexpr (kRows > 1)
    gemm_last_rows<kRows - 1, kVectors, accumulate>(rows, a, b, b_stride, c, c_stride, depth);
}

// M rows by kVectors vectors.
template <int kVectors, bool accumulate>
void gemm_strip(int64_t rows, Strided a, const float* b, int64_t b_stride, float* c, int64_t c_stride, int64_t depth) {
  constexpr int kRows = tile_rows(kVectors);
  int64_t m = 0;
  for (; m + kRows <= rows; m += kRows) {
    gemm_tile<kRows, kVectors, accumulate>(a, b, b_stride, c, c_stride, depth);
    a.data += kRows * a.row;
    c += kRows * c_stride;
  }
  if (m < rows) gemm_last_rows<kRows - 1, kVectors, accumulate>(rows - m, a, b, b_stride, c, c_stride, depth);
}

template <bool accumulate>
void gemm_strip_of(int vectors, int64_t rows, Strided a, const float* b, int64_t b_stride, float* c, int64_t c_stride,
                   int64_t depth) {
  if (vectors == 1) return gemm_strip<1, accumulate>(rows, a, b, b_stride, c, c_stride, depth);
  if (vectors == 2) return gemm_strip<2, accumulate>(rows, a, b, b_stride, c, c_stride, depth);
  if constexpr (kMaxTileVectors == 4) {
    if (vectors == 3) return gemm_strip<3, accumulate>(rows, a, b, b_stride, c, c_stride, depth);
    return gemm_strip<4, accumulate>(rows, a, b, b_stride, c, c_stride, depth);
  }
}

// B as plain rows of `columns` (a multiple of kLanes) elements.
template <bool accumulate>
void gemm_rows(int64_t rows, int64_t columns, int64_t depth, Strided a, const float* b, int64_t b_stride, float* c,
               int64_t c_stride) {
  for (int64_t n = 0; n < columns; n += kMaxTileVectors * kLanes) {
    int vectors = static_cast<int>((columns - n) / kLanes);
    gemm_strip_of<accumulate>(vectors < kMaxTileVectors ? vectors : kMaxTileVectors, rows, a, b + n, b_stride, c + n,
                              c_stride, depth);
  }
}

// B as panels: kPanelColumns of its columns at a time, the rows of a panel one after another; the last one may be narrower.
constexpr int kPanelColumns = kMaxTileVectors * kLanes;

// The first `columns` of the `packed` that the panels hold.
inline void gemm_panels(int64_t rows, int64_t columns, int64_t packed, int64_t depth, Strided a, const float* panels, float* c,
                        int64_t c_stride) {
  for (int64_t n = 0; n < columns; n += kPanelColumns) {
    int64_t width = packed - n < kPanelColumns ? packed - n : kPanelColumns;
    int64_t wanted = columns - n < width ? columns - n : width;
    gemm_strip_of<false>(static_cast<int>(wanted / kLanes), rows, a, panels + n * depth, width, c + n, c_stride, depth);
  }
}

// ---- Packing ----

// [rows, columns] of T, as floats: (x + bias) * factor, rows padded with zeros to `stride`, a multiple of kLanes.
template <class T>
void pack_rows(const T* from, int64_t from_stride, int64_t rows, int64_t columns, const float* bias, float factor, float* to,
               int64_t stride) {
  for (int64_t n = 0; n < stride; n += kLanes) {
    Floats added = load_up_to(bias + n, columns - n);
    for (int64_t m = 0; m < rows; ++m)
      store(to + m * stride + n, (load_up_to(from + m * from_stride + n, columns - n) + added) * factor);
  }
}

// Exchanges blocks of w lanes between vectors i and i + w: after w = kLanes / 2, ..., 2, 1 the square is transposed.
template <int w, int... lane>
TRIREME_INLINE void exchange_blocks(Floats* rows, std::integer_sequence<int, lane...>) {
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i) {
    if (i & w) continue;
    Floats a = rows[i], b = rows[i + w];
    rows[i] = __builtin_shufflevector(a, b, ((lane & w) == 0 ? lane : kLanes + lane - w)...);
    rows[i + w] = __builtin_shufflevector(a, b, ((lane & w) == 0 ? lane + w : kLanes + lane)...);
  }
}

template <int w>
TRIREME_INLINE void transpose_from(Floats* rows) {
  exchange_blocks<w>(rows, std::make_integer_sequence<int, kLanes>());
  if constexpr (w > 1) transpose_from<w / 2>(rows);
}

// The transpose of [rows, columns] plus a bias for each row (null: none), as the panels that gemm_panels reads: its row is a column
// here. `rows` of them are padded to a multiple of kLanes.
template <class T>
void pack_transposed(const T* from, int64_t from_stride, int64_t rows, int64_t columns, const float* bias, float* panels) {
  int64_t padded = (rows + kLanes - 1) / kLanes * kLanes;
  for (int64_t m = 0; m < padded; m += kLanes) {
    int64_t first = m / kPanelColumns * kPanelColumns;
    int64_t width = padded - first < kPanelColumns ? padded - first : kPanelColumns;
    float* to = panels + first * columns + (m - first);
    for (int64_t n = 0; n < columns; n += kLanes) {
      Floats square[kLanes], added = bias ? load_up_to(bias + n, columns - n) : -Floats{};  // x + -0 is x
#pragma GCC unroll 16
      for (int i = 0; i < kLanes; ++i)
        square[i] = m + i < rows ? load_up_to(from + (m + i) * from_stride + n, columns - n) + added : Floats{};
      transpose_from<kLanes / 2>(square);
#pragma GCC unroll 16
      for (int i = 0; i < kLanes; ++i)
        if (n + i < columns) store(to + (n + i) * width, square[i]);
    }
  }
}
