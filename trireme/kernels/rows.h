// What kernels over rows of activations, [rows, H], share: how rows are dealt to threads, and sums over rows.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "trireme/kernels/parallel.h"

namespace trireme::kernels {

// A thread gets at least this many elements: below it, waking the thread costs more than it saves.
constexpr int64_t kGrainElements = 16 << 10;

inline int64_t row_grain(int64_t H) { return kGrainElements / std::max<int64_t>(H, 1) + 1; }

// body(begin, end) for consecutive rows.
template <class Body>
void parallel_rows(int64_t rows, int64_t H, const Body& body) {
  parallel_for(rows, row_grain(H), body);
}

// rows >= 0 and H >= 1, else InvalidArgument.
void check_shape(const char* kernel, int64_t rows, int64_t H);

// A parameter of H elements; where it is absent, the value that stands for it.
class RowOrConstant {
 public:
  RowOrConstant(const float* row, float constant, int64_t H)
      : constants_(row ? 0 : H, constant), row_(row ? row : constants_.data()) {}
  RowOrConstant(const RowOrConstant&) = delete;
  const float* data() const { return row_; }

 private:
  std::vector<float> constants_;
  const float* row_;
};

// Sums over all rows, per column: the gradients of parameters. The same bits for any number of threads: rows are added up in
// chunks that depend on the number of rows alone, and the chunks' sums are added in order.
//
// A chunk is 32 rows, or more where there would be more than 256 chunks. So there is work for many threads, and the partial
// sums are at most a 32nd of what is read to make them, and at most 256 rows.
class ColumnSums {
 public:
  // `sums` different sums over rows of H columns.
  ColumnSums(int64_t rows, int64_t H, int sums);

  // Between one chunk's sum and its next: H rounded up to a whole vector, so that a partial sum may be read and written in
  // vectors.
  int64_t stride() const { return stride_; }

  // body(begin, end, partial) once per chunk: it adds rows [begin, end) to partial[sum * stride + column], which is 0 at
  // first and aligned to 64 bytes. Called once.
  template <class Body>
  void add(const Body& body) {
    int64_t grain = kGrainElements / (chunk_rows_ * stride_) + 1;
    parallel_for(chunks_, grain, [&](int64_t first, int64_t last) {
      for (int64_t chunk = first; chunk < last; ++chunk) {
        float* partial = partial_of(chunk);
        std::fill(partial, partial + sums_ * stride_, 0.0f);
        body(chunk * chunk_rows_, std::min(rows_, (chunk + 1) * chunk_rows_), partial);
      }
    });
  }

  // The totals, one output of H columns per sum; null where one is not wanted.
  void write(const std::vector<float*>& outputs) const { finish(outputs, false); }
  // The same, added to what is there.
  void add_to(const std::vector<float*>& outputs) const { finish(outputs, true); }

 private:
  float* partial_of(int64_t chunk) const { return partials_ + chunk * sums_ * stride_; }
  void finish(const std::vector<float*>& outputs, bool keep) const;

  int64_t rows_, H_, sums_, stride_, chunk_rows_, chunks_;
  std::unique_ptr<float[]> memory_;
  float* partials_;
};

}  // namespace trireme::kernels
