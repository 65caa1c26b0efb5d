// Memory for tensors that are made again and again: large blocks are kept when they are freed, instead of going back to the
// kernel, which would have to clear and map each page anew at the next step. A step of MiniLM meets 34,000 page faults
// without it, 8 % of its time.
#pragma once

#include <cstddef>
#include <list>
#include <map>
#include <mutex>
#include <unordered_map>

namespace trireme::torch_ext {

#pragma GCC visibility push(default)

// Owns the blocks that are free, not those in use. Threads may share it. Blocks are aligned to 64 bytes, those of 2 MiB and
// more to huge pages, for which the kernel is asked. What was freed and not used since longest goes back to the kernel when
// more than a quarter of the largest sum ever in use is free.
class BlockCache {
 public:
  ~BlockCache();

  // At least so many bytes; they are not cleared. Throws std::bad_alloc.
  void* allocate(size_t bytes);
  // What allocate() gave; false, and nothing else, for any other address.
  bool free(void* block);

  struct Stats {
    size_t used_bytes = 0, most_used_bytes = 0, free_bytes = 0;
    size_t mapped = 0;  // blocks that came from the kernel so far
  };
  Stats stats() const;

 private:
  struct Free {
    void* block;
    size_t bytes;
  };
  using Age = std::list<Free>;  // the one freed last comes first

  void* take(size_t bytes);
  void trim();

  mutable std::mutex mutex_;
  std::unordered_map<void*, size_t> used_;
  Age free_;
  std::multimap<size_t, Age::iterator> by_size_;
  Stats stats_;
};

// From now on torch's CPU tensors of 1 MiB and more come from a BlockCache; smaller ones as before. Once per process.
void install_block_cache();

#pragma GCC visibility pop

}  // namespace trireme::torch_ext
