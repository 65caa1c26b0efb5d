#include "trireme/kernels/gemm-inl.h"

int64_t panel_columns() { return kPanelColumns; }

// Some columns of B, at most a panel's, and `depth` rows of them.
void pack_panel(MatrixView b, int64_t columns, int64_t depth, float* to) {
  if (b.column != 1) return pack_transposed(b.data, b.column, columns, depth, nullptr, to);
  constexpr int64_t kAhead = 16;
  for (int64_t k = 0; k < depth; ++k)
    for (int64_t n = 0; n < columns; n += kLanes) {
      if (k + kAhead < depth) __builtin_prefetch(b.data + (k + kAhead) * b.row + n);
      store(to + k * columns + n, load(b.data + k * b.row + n));
    }
}

// All rows of A against one panel. A is read where it lies: for a tile of C a few KiB of it if by rows, a line of the cache
// for each k if by columns.
void multiply_panel(const PanelProduct& of) {
  const auto strip = of.accumulate ? gemm_strip_of<true> : gemm_strip_of<false>;
  strip(static_cast<int>(of.columns / kLanes), of.rows, {of.a.data, of.a.row, of.a.column}, of.panel, of.columns, of.c,
        of.c_row, of.depth);
}
