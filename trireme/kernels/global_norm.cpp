#include "trireme/kernels/global_norm.h"

#include <immintrin.h>

#include <cmath>

#include "trireme/cpu/isa.h"
#include "trireme/cpu/target_region.h"
#include "trireme/cpu/vector_types.h"
#include "trireme/kernels/multi_tensor.h"

namespace trireme::kernels {

#define TRIREME_BODY "trireme/kernels/global_norm-inl.h"
#include "trireme/kernels/foreach_isa.h"

double sum_of_squares(std::span<const ConstTensor> tensors) {
  auto of_fp32 = TRIREME_AT_LEVEL(sum_of_squares_part<float>);
  auto of_bf16 = TRIREME_AT_LEVEL(sum_of_squares_part<bfloat16>);
  std::vector<Chunk> chunks = chunks_of(tensors);
  std::vector<double> sums(chunks.size());
  for_each_chunk(chunks, [&](const Chunk& chunk, size_t i) {
    const ConstTensor& tensor = tensors[chunk.tensor];
    int64_t n = chunk.end - chunk.begin;
    sums[i] = tensor.fp32 ? of_fp32(tensor.fp32 + chunk.begin, n) : of_bf16(tensor.bf16 + chunk.begin, n);
  });
  double total = 0;
  for (double sum : sums) total += sum;
  return total;
}

double global_norm(std::span<const ConstTensor> tensors) { return std::sqrt(sum_of_squares(tensors)); }

double clip_coefficient(double norm, double max_norm) {
  double coefficient = max_norm / (norm + 1e-6);
  return coefficient > 1 ? 1 : coefficient;
}

}  // namespace trireme::kernels
