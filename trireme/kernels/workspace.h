// Memory for intermediate results that a thread keeps.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>

namespace trireme::kernels {

// Grows to the most that was asked for and stays: the next call finds it warm. Growing loses what it held. For one thread.
class Workspace {
 public:
  // At a multiple of 64 bytes; nullptr where there is no memory. `floats` > 0.
  float* of(int64_t floats) {
    if (floats > size_) {
      size_ = 0;
      block_.reset(static_cast<float*>(std::aligned_alloc(64, (static_cast<size_t>(floats) * sizeof(float) + 63) / 64 * 64)));
      if (block_) size_ = floats;
    }
    return block_.get();
  }

 private:
  struct Free {
    void operator()(float* block) const { std::free(block); }
  };
  std::unique_ptr<float, Free> block_;
  int64_t size_ = 0;
};

}  // namespace trireme::kernels
