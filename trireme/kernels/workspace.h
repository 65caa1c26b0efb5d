// Memory for intermediate results that a thread keeps.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>

namespace trireme::kernels {

// The calling thread's, at a multiple of 64 bytes; nullptr where there is no memory. It grows to the most that was asked for
// and stays: the next call finds it warm. One user at a time: asking again may move it, and loses what it held.
inline float* thread_workspace(int64_t floats) {
  struct Free {
    void operator()(float* block) const { std::free(block); }
  };
  thread_local std::unique_ptr<float, Free> block;
  thread_local int64_t size = 0;
  if (floats > size) {
    size = 0;
    block.reset(static_cast<float*>(std::aligned_alloc(64, (static_cast<size_t>(floats) * sizeof(float) + 63) / 64 * 64)));
    if (block) size = floats;
  }
  return block.get();
}

}  // namespace trireme::kernels
