#include "trireme/kernels/matmul.h"

#include <immintrin.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <new>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/float16.h"
#include "trireme/cpu/isa.h"
#include "trireme/cpu/target_region.h"
#include "trireme/cpu/vector_types.h"
#include "trireme/kernels/parallel.h"
#include "trireme/kernels/workspace.h"

namespace trireme::kernels {

struct PanelProduct {
  MatrixView a;
  const float* panel;  // [depth, columns]
  float* c;
  int64_t c_row, rows, columns, depth;
  bool accumulate;
};

#define TRIREME_BODY "trireme/kernels/matmul-inl.h"
#include "trireme/kernels/foreach_isa.h"

namespace {

// Rows of B that are packed at a time: a panel of them (128 KiB with AVX-512) lies in the second-level cache.
constexpr int64_t kDepth = 512;
// What packing a panel takes, in rows that could be multiplied instead (2 % of 768, measured).
constexpr double kPackingRows = 15;
// How much of a task the others wait for the last thread, beyond what cannot be dealt out evenly: a guess.
constexpr double kHeldUp = 0.1;
constexpr int64_t kLeastChunk = 96;
constexpr int64_t kTileRows = 6;  // of a full panel

MatrixView part_of(const MatrixView& view, int64_t row, int64_t column) {
  return {view.data + row * view.row + column * view.column, view.row, view.column};
}

int64_t divide_up(int64_t n, int64_t by) { return (n + by - 1) / by; }

void check(const Matmul& call) {
  if (call.M < 0 || call.N < 0 || call.K < 0)
    throw InvalidArgument(str("matmul: a size is negative: ", call.M, " x ", call.K, " by ", call.K, " x ", call.N));
  if (call.N % kMatmulColumns != 0)
    throw InvalidArgument(str("matmul: the product has ", call.N, " columns; they must be a multiple of ", kMatmulColumns));
  const auto in_one_piece = [](const MatrixView& view) { return view.row == 1 || view.column == 1; };
  if (!in_one_piece(call.a) || !in_one_piece(call.b))
    throw InvalidArgument("matmul: neither the rows nor the columns of an operand lie in one piece");
  if (call.M > 1 && call.c_row < call.N)
    throw InvalidArgument(str("matmul: rows of ", call.N, " columns lie ", call.c_row, " apart"));
}

// How the columns and the rows of C are cut into tasks, and K into blocks.
struct Cuts {
  int64_t panel, panels, chunk, chunks, depth;
};

// The rows of a chunk with which all threads are done soonest, in whole tiles.
int64_t chunk_of(int64_t M, int64_t panels) {
  const int64_t threads = omp_get_max_threads();
  int64_t best = M;
  double least = std::numeric_limits<double>::infinity();
  for (int64_t chunks = 1; chunks <= std::max<int64_t>(M / kLeastChunk, 1); ++chunks) {
    const int64_t rows = divide_up(divide_up(M, chunks), kTileRows) * kTileRows;
    const auto turns = static_cast<double>(divide_up(panels * divide_up(M, rows), threads));
    const double time = (turns + kHeldUp) * (static_cast<double>(rows) + kPackingRows);
    if (time < least) best = rows, least = time;
  }
  return best;
}

Cuts cuts_of(const Matmul& call) {
  Cuts cuts{};
  cuts.panel = TRIREME_AT_LEVEL(panel_columns)();
  cuts.panels = divide_up(call.N, cuts.panel);
  cuts.chunk = chunk_of(call.M, cuts.panels);
  cuts.chunks = divide_up(call.M, cuts.chunk);
  cuts.depth = divide_up(call.K, divide_up(call.K, kDepth));
  return cuts;
}

void multiply_task(const Matmul& call, const Cuts& cuts, int64_t panel, int64_t chunk, float* packed) {
  const int64_t n = panel * cuts.panel, m = chunk * cuts.chunk;
  const int64_t columns = std::min(cuts.panel, call.N - n), rows = std::min(cuts.chunk, call.M - m);
  for (int64_t k = 0; k < call.K; k += cuts.depth) {
    const int64_t depth = std::min(cuts.depth, call.K - k);
    TRIREME_AT_LEVEL(pack_panel)(part_of(call.b, k, n), columns, depth, packed);
    TRIREME_AT_LEVEL(multiply_panel)
    ({.a = part_of(call.a, m, k),
      .panel = packed,
      .c = call.c + m * call.c_row + n,
      .c_row = call.c_row,
      .rows = rows,
      .columns = columns,
      .depth = depth,
      .accumulate = call.accumulate || k > 0});
  }
}

void multiply(const Matmul& call, const Cuts& cuts) {
  std::atomic<bool> out_of_memory = false;
  parallel_tasks(cuts.panels * cuts.chunks, [&](int64_t task) {
    if (float* const packed = thread_workspace(cuts.depth * cuts.panel))
      multiply_task(call, cuts, task / cuts.chunks, task % cuts.chunks, packed);
    else
      out_of_memory = true;
  });
  if (out_of_memory) throw std::bad_alloc();
}

}  // namespace

void matmul(const Matmul& call) {
  check(call);
  if (call.M == 0 || call.N == 0) return;
  if (call.K > 0) return multiply(call, cuts_of(call));
  if (call.accumulate) return;
  for (int64_t m = 0; m < call.M; ++m) std::fill_n(call.c + m * call.c_row, call.N, 0.0f);
}

}  // namespace trireme::kernels
