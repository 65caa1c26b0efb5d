// Many tensors as one piece of work: a model has hundreds, most of them tiny. They are cut into chunks of a fixed size,
// which depend on nothing but the tensors' sizes, and threads take the next chunk when they are free.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "trireme/kernels/parallel.h"

namespace trireme::kernels {

// 64 KiB of each array: long enough for the prefetcher, short enough to share out.
constexpr int64_t kChunkElements = 16 << 10;

struct Chunk {
  size_t tensor;
  int64_t begin, end;
};

template <class Tensor>
std::vector<Chunk> chunks_of(std::span<const Tensor> tensors) {
  std::vector<Chunk> chunks;
  for (size_t tensor = 0; tensor < tensors.size(); ++tensor)
    for (int64_t begin = 0; begin < tensors[tensor].count; begin += kChunkElements)
      chunks.push_back({tensor, begin, std::min(begin + kChunkElements, tensors[tensor].count)});
  return chunks;
}

// body(chunk, its number) for every chunk, on all threads if there is enough for two.
template <class Body>
void for_each_chunk(const std::vector<Chunk>& chunks, const Body& body) {
  int64_t elements = 0;
  for (const Chunk& chunk : chunks) elements += chunk.end - chunk.begin;
  if (elements <= kChunkElements) {
    for (size_t i = 0; i < chunks.size(); ++i) body(chunks[i], i);
  } else {
    parallel_tasks(static_cast<int64_t>(chunks.size()), [&](int64_t i) { body(chunks[i], static_cast<size_t>(i)); });
  }
}

}  // namespace trireme::kernels
