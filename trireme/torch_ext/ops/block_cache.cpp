#include "trireme/torch_ext/ops/block_cache.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <pthread.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <iterator>

#include "trireme/base/env.h"

namespace trireme::torch_ext {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kRegion = size_t{256} << 20;
constexpr size_t kGrain = size_t{16} << 10;    // sizes and addresses of blocks are multiples
constexpr size_t kSmallest = size_t{1} << 20;  // of torch's tensors that get a block
constexpr size_t kLargest = size_t{1} << 56;   // no address space holds it, and sums with it do not overflow

size_t round_up(size_t bytes, size_t step) { return (bytes + step - 1) / step * step; }

// Huge pages begin at multiples of their size: what is mapped before and behind goes back. Null if the kernel refuses, as it
// does what is larger than the machine's memory (without MAP_NORESERVE).
char* map_region(size_t bytes) {
  void* mapped = ::mmap(nullptr, bytes + kHugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  auto* begin = static_cast<char*>(mapped);
  const size_t before = round_up(reinterpret_cast<uintptr_t>(begin), kHugePage) - reinterpret_cast<uintptr_t>(begin);
  if (before > 0) ::munmap(begin, before);
  if (before < kHugePage) ::munmap(begin + before + bytes, kHugePage - before);
  ::madvise(begin + before, bytes, MADV_HUGEPAGE);  // refused where the kernel has none: small pages serve
  return begin + before;
}

}  // namespace

BlockCache::~BlockCache() {
  for (const auto& [begin, bytes] : regions_) ::munmap(begin, bytes);
}

BlockCache::Blocks::iterator BlockCache::add_region(size_t bytes) {
  size_t size = std::max(kRegion, round_up(bytes, kHugePage));
  char* begin = map_region(size);
  if (begin == nullptr && size > bytes)
    begin = map_region(size = round_up(bytes, kHugePage));  // there may be a limit to address space
  if (begin == nullptr) return blocks_.end();
  regions_.emplace_back(begin, size);
  return blocks_.emplace(begin, Block{.bytes = size, .resident = 0, .used = false, .begins_region = true}).first;
}

// Leaves `bytes` in the block; the rest is a free block behind it.
void BlockCache::split(Blocks::iterator block, size_t bytes) {
  auto& [begin, whole] = *block;
  const size_t rest = whole.bytes - bytes;
  if (rest == 0) return;
  const size_t resident = whole.resident - std::min(bytes, whole.resident);
  blocks_.emplace(begin + bytes, Block{.bytes = rest, .resident = resident, .used = false, .begins_region = false});
  free_.emplace(rest, begin + bytes);
  whole.bytes = bytes;
  whole.resident -= resident;
}

void* BlockCache::allocate(size_t bytes) {
  if (bytes > kLargest) return nullptr;
  const std::lock_guard lock(mutex_);
  bytes = round_up(std::max<size_t>(bytes, 1), kGrain);
  Blocks::iterator block;
  if (const auto found = free_.lower_bound({bytes, nullptr}); found != free_.end()) {
    block = blocks_.find(found->second);
    free_.erase(found);
  } else {
    block = add_region(bytes);
    if (block == blocks_.end()) return nullptr;
  }
  split(block, bytes);
  block->second.used = true;
  stats_.touched_bytes += bytes - block->second.resident;
  stats_.resident_bytes += bytes - block->second.resident;
  block->second.resident = bytes;
  stats_.used_bytes += bytes;
  stats_.most_used_bytes = std::max(stats_.most_used_bytes, stats_.used_bytes);
  trim();
  return block->first;
}

// Two free neighbours, of which `first` is not in free_ and `second` is.
BlockCache::Blocks::iterator BlockCache::joined(Blocks::iterator first, Blocks::iterator second) {
  Block &left = first->second, &right = second->second;
  free_.erase({right.bytes, second->first});
  if (right.resident > 0) {
    stats_.resident_bytes += left.bytes - left.resident;
    left.resident = left.bytes + right.resident;
  }
  left.bytes += right.bytes;
  blocks_.erase(second);
  return first;
}

bool BlockCache::free(void* address) {
  const std::lock_guard lock(mutex_);
  auto block = blocks_.find(static_cast<char*>(address));
  if (block == blocks_.end() || !block->second.used) return false;
  block->second.used = false;
  stats_.used_bytes -= block->second.bytes;
  if (const auto next = std::next(block); next != blocks_.end() && !next->second.used && !next->second.begins_region)
    joined(block, next);
  if (!block->second.begins_region && !std::prev(block)->second.used) {
    const auto previous = std::prev(block);
    free_.erase({previous->second.bytes, previous->first});
    free_.emplace(block->second.bytes, block->first);
    block = joined(previous, block);
  }
  free_.emplace(block->second.bytes, block->first);
  trim();
  return true;
}

// The largest go first: they hold the most, and are the last to be wanted.
void BlockCache::trim() {
  const size_t limit = stats_.most_used_bytes + stats_.most_used_bytes / 8;
  for (auto each = free_.rbegin(); each != free_.rend() && stats_.resident_bytes > limit; ++each) {
    Block& block = blocks_.find(each->second)->second;
    if (block.resident == 0) continue;
    ::madvise(each->second, block.bytes, MADV_DONTNEED);
    stats_.resident_bytes -= block.resident;
    block.resident = 0;
  }
}

BlockCache::Stats BlockCache::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

namespace {

// Never destroyed: tensors of static duration may be freed after it.
BlockCache& cache() {
  static auto* const cache = new BlockCache;
  return *cache;
}

// torch's own, for what is small and for what the kernel refuses.
c10::Allocator*& torchs_allocator() {
  static c10::Allocator* allocator = nullptr;
  return allocator;
}

void free_block(void* block) { cache().free(block); }
void free_either(void* block) {
  if (!cache().free(block)) torchs_allocator()->raw_deallocate(block);
}

class Allocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    void* block = bytes < kSmallest ? nullptr : cache().allocate(bytes);
    if (block == nullptr) return torchs_allocator()->allocate(bytes);
    return {block, block, &free_block, at::Device(at::DeviceType::CPU)};
  }
  // For those who keep an address and no DataPtr: it may be one of either kind.
  c10::DeleterFnPtr raw_deleter() const override { return &free_either; }
  void copy_data(void* to, const void* from, size_t bytes) const override { std::memcpy(to, from, bytes); }
};

}  // namespace

void install_block_cache() {
  static Allocator allocator;
  if (c10::GetCPUAllocator() == &allocator || !env::flag("TRIREME_KEEP_BLOCKS")) return;
  torchs_allocator() = c10::GetCPUAllocator();
  ::pthread_atfork([] { cache().lock(); }, [] { cache().unlock(); }, [] { cache().unlock(); });
  c10::SetCPUAllocator(&allocator, /*priority=*/100);
}

}  // namespace trireme::torch_ext
