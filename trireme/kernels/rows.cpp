#include "trireme/kernels/rows.h"

#include "trireme/base/error.h"

namespace trireme::kernels {

namespace {

constexpr int64_t kChunkRows = 32, kMaxChunks = 256;
constexpr int64_t kAlignment = 64, kVectorFloats = kAlignment / sizeof(float);

int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace

void check_shape(const char* kernel, int64_t rows, int64_t H) {
  if (rows < 0 || H < 1)
    throw InvalidArgument(str(kernel, ": the shape is [", rows, ", ", H, "]; rows must be 0 or more, columns 1 or more"));
}

ColumnSums::ColumnSums(int64_t rows, int64_t H, int sums)
    : rows_(rows),
      H_(H),
      sums_(sums),
      stride_(divide_up(H, kVectorFloats) * kVectorFloats),
      chunk_rows_(std::max(kChunkRows, divide_up(rows, kMaxChunks))),
      chunks_(divide_up(rows, chunk_rows_)),
      memory_(new float[chunks_ * sums_ * stride_ + kVectorFloats]) {
  auto address = reinterpret_cast<uintptr_t>(memory_.get());
  partials_ = memory_.get() + (-address % kAlignment) / sizeof(float);
}

void ColumnSums::finish(const std::vector<float*>& outputs, bool keep) const {
  TRIREME_ENFORCE(static_cast<int64_t>(outputs.size()) == sums_, outputs.size(), " outputs for ", sums_, " sums");
  parallel_for(H_, kGrainElements / (chunks_ * sums_ + 1) + 1, [&](int64_t begin, int64_t end) {
    for (int64_t sum = 0; sum < sums_; ++sum) {
      float* total = outputs[sum];
      if (!total) continue;
      if (!keep) std::fill(total + begin, total + end, 0.0f);
      for (int64_t chunk = 0; chunk < chunks_; ++chunk) {
        const float* partial = partial_of(chunk) + sum * stride_;
        for (int64_t column = begin; column < end; ++column) total[column] += partial[column];
      }
    }
  });
}

}  // namespace trireme::kernels
