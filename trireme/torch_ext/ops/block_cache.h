// Memory for tensors that are made again and again: large blocks are kept when they are freed, instead of going back to the
// kernel, which would have to clear and map each page anew at the next step. A step of MiniLM meets 34,000 page faults
// without it, 8 % of its time.
#pragma once

#include <cstddef>
#include <map>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

namespace trireme::torch_ext {

#pragma GCC visibility push(default)

// An arena. It maps regions, for which the kernel is asked for huge pages, and cuts blocks from them: the smallest free
// block that suffices, split; free neighbours become one. So steps of different lengths share memory. Pages go back to the
// kernel only where fragments hold an eighth more than was ever in use at once. Threads may share it.
class BlockCache {
 public:
  ~BlockCache();

  // At least so many bytes, aligned to a page; they are not cleared. Null where the kernel refuses them.
  void* allocate(size_t bytes);
  // What allocate() gave; false, and nothing else, for any other address.
  bool free(void* block);

  struct Stats {
    size_t used_bytes = 0, most_used_bytes = 0;
    size_t resident_bytes = 0;  // at most so many have pages
    size_t touched_bytes = 0;   // so many came from the kernel so far, those that went back in between counted again
  };
  Stats stats() const;

  // Around fork(): a child gets a cache that no thread was in the middle of.
  void lock() { mutex_.lock(); }
  void unlock() { mutex_.unlock(); }

 private:
  struct Block {
    size_t bytes;
    size_t resident;  // behind so many no page was touched
    bool used;
    bool begins_region;
  };
  using Blocks = std::map<char*, Block>;  // all of all regions, by address

  Blocks::iterator add_region(size_t bytes);  // blocks_.end() where the kernel refuses it
  void split(Blocks::iterator block, size_t bytes);
  Blocks::iterator joined(Blocks::iterator first, Blocks::iterator second);
  void trim();

  mutable std::mutex mutex_;
  Blocks blocks_;
  std::set<std::pair<size_t, char*>> free_;  // by size
  std::vector<std::pair<char*, size_t>> regions_;
  Stats stats_;
};

// From now on torch's CPU tensors of 1 MiB and more come from a BlockCache; smaller ones as before, and what the kernel
// refuses: running out of memory is torch's own error, which programs know. Once per process, which may fork.
// TRIREME_KEEP_BLOCKS=0: nothing happens.
void install_block_cache();

#pragma GCC visibility pop

}  // namespace trireme::torch_ext
