#include "trireme/torch_ext/ops/block_cache.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <new>
#include <vector>

namespace trireme::torch_ext {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kSmallest = size_t{1} << 20;  // of torch's tensors that get a block

// Up to an eighth more, so that batches of about the same length need blocks of the same size.
size_t rounded(size_t bytes) {
  const size_t step = std::max<size_t>(4096, std::bit_floor(std::max<size_t>(bytes, 1)) / 8);
  return (bytes + step - 1) / step * step;
}

// A block may serve for what is somewhat smaller.
bool fits(size_t block, size_t bytes) { return block - bytes <= bytes / 4; }

void* map(size_t bytes) {
  // Huge pages begin at multiples of their size: what is mapped before and behind goes back.
  const size_t slack = bytes >= kHugePage ? kHugePage : 0;
  void* mapped = ::mmap(nullptr, bytes + slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) throw std::bad_alloc();
  if (slack == 0) return mapped;
  auto* begin = static_cast<char*>(mapped);
  const size_t before = (kHugePage - reinterpret_cast<uintptr_t>(begin) % kHugePage) % kHugePage;
  if (before > 0) ::munmap(begin, before);
  if (slack > before) ::munmap(begin + before + bytes, slack - before);
  ::madvise(begin + before, bytes, MADV_HUGEPAGE);  // refused where the kernel has none: small pages serve
  return begin + before;
}

}  // namespace

BlockCache::~BlockCache() {
  for (const Free& each : free_) ::munmap(each.block, each.bytes);
}

void* BlockCache::take(size_t bytes) {
  const auto found = by_size_.lower_bound(bytes);
  if (found == by_size_.end() || !fits(found->first, bytes)) return nullptr;
  void* block = found->second->block;
  used_[block] = found->first;
  stats_.free_bytes -= found->first;
  stats_.used_bytes += found->first;
  free_.erase(found->second);
  by_size_.erase(found);
  return block;
}

void* BlockCache::allocate(size_t bytes) {
  const std::lock_guard lock(mutex_);
  bytes = rounded(bytes);
  void* block = take(bytes);
  if (block == nullptr) {
    block = map(bytes);
    used_[block] = bytes;
    stats_.used_bytes += bytes;
    ++stats_.mapped;
  }
  stats_.most_used_bytes = std::max(stats_.most_used_bytes, stats_.used_bytes);
  return block;
}

bool BlockCache::free(void* block) {
  const std::lock_guard lock(mutex_);
  const auto found = used_.find(block);
  if (found == used_.end()) return false;
  const size_t bytes = found->second;
  used_.erase(found);
  stats_.used_bytes -= bytes;
  stats_.free_bytes += bytes;
  free_.push_front({block, bytes});
  by_size_.emplace(bytes, free_.begin());
  trim();
  return true;
}

void BlockCache::trim() {
  // In the course of a step nearly all of it is free at some moment: what counts is all that the cache holds.
  while (!free_.empty() && stats_.used_bytes + stats_.free_bytes > stats_.most_used_bytes + stats_.most_used_bytes / 4) {
    const Free oldest = free_.back();
    auto [first, last] = by_size_.equal_range(oldest.bytes);
    by_size_.erase(std::find_if(first, last, [&](const auto& each) { return each.second->block == oldest.block; }));
    free_.pop_back();
    stats_.free_bytes -= oldest.bytes;
    ::munmap(oldest.block, oldest.bytes);
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

// torch's own, for what is small.
c10::Allocator*& small_allocator() {
  static c10::Allocator* allocator = nullptr;
  return allocator;
}

void free_block(void* block) { cache().free(block); }
void free_either(void* block) {
  if (!cache().free(block)) small_allocator()->raw_deallocate(block);
}

class Allocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    if (bytes < kSmallest) return small_allocator()->allocate(bytes);
    void* block = cache().allocate(bytes);
    return {block, block, &free_block, at::Device(at::DeviceType::CPU)};
  }
  // For those who keep an address and no DataPtr: it may be one of either kind.
  c10::DeleterFnPtr raw_deleter() const override { return &free_either; }
  void copy_data(void* to, const void* from, size_t bytes) const override { std::memcpy(to, from, bytes); }
};

}  // namespace

void install_block_cache() {
  static Allocator allocator;
  if (c10::GetCPUAllocator() == &allocator) return;
  small_allocator() = c10::GetCPUAllocator();
  c10::SetCPUAllocator(&allocator, /*priority=*/100);
}

}  // namespace trireme::torch_ext
