#include "trireme/torch_ext/ops/block_cache.h"

#include <ATen/ops/empty.h>
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

namespace trireme::torch_ext {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

TEST(BlockCache, FreedBlocksServeAgain) {
  BlockCache cache;
  void* first = cache.allocate(10 * kMiB);
  std::memset(first, 1, 10 * kMiB);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(first) % (2 * kMiB), 0u);
  cache.free(first);
  void* again = cache.allocate(9 * kMiB);  // somewhat smaller
  EXPECT_EQ(again, first);
  void* other = cache.allocate(10 * kMiB);
  EXPECT_NE(other, first);
  EXPECT_EQ(cache.stats().mapped, 2u);
  cache.free(again);
  void* small = cache.allocate(kMiB);  // not a tenth of a block for it
  EXPECT_NE(small, first);
  cache.free(other);
  cache.free(small);
  EXPECT_EQ(cache.stats().used_bytes, 0u);
}

TEST(BlockCache, WhatIsNotUsedGoesBack) {
  BlockCache cache;
  for (size_t megabytes = 4; megabytes <= 64; ++megabytes) {
    void* block = cache.allocate(megabytes * kMiB);
    *static_cast<char*>(block) = 1;
    cache.free(block);
    const BlockCache::Stats stats = cache.stats();
    EXPECT_LE(stats.used_bytes + stats.free_bytes, stats.most_used_bytes + stats.most_used_bytes / 4);
  }
}

TEST(BlockCache, TheSameStepAgainMapsNothing) {
  BlockCache cache;
  const auto step = [&](size_t tokens) {
    std::vector<void*> blocks;
    for (size_t width : {384, 1536, 1152, 384}) blocks.push_back(cache.allocate(tokens * width * 4));
    for (void* block : blocks) cache.free(block);
  };
  step(1900);
  step(2000);
  const size_t mapped = cache.stats().mapped;
  for (size_t tokens = 1900; tokens < 2000; tokens += 7) step(tokens);
  EXPECT_EQ(cache.stats().mapped, mapped);
}

TEST(BlockCache, ThreadsShareIt) {
  BlockCache cache;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (size_t i = 1; i < 200; ++i) {
        const size_t bytes = (i % 7 + 1) * kMiB;
        auto* block = static_cast<char*>(cache.allocate(bytes));
        block[0] = block[bytes - 1] = static_cast<char>(t);
        EXPECT_EQ(block[0], static_cast<char>(t));
        cache.free(block);
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(cache.stats().used_bytes, 0u);
}

TEST(BlockCache, TensorsComeFromIt) {
  install_block_cache();
  const void* block = nullptr;
  {
    const at::Tensor tensor = at::empty({3 << 20}, at::kFloat).fill_(1);
    block = tensor.const_data_ptr();
    EXPECT_EQ(tensor.sum().item<float>(), 3 << 20);
  }
  EXPECT_EQ(at::empty({3 << 20}, at::kFloat).const_data_ptr(), block);
  for (size_t bytes : {size_t{100}, 4 * kMiB}) {  // as oneDNN asks for its scratch
    void* raw = c10::GetCPUAllocator()->raw_allocate(bytes);
    std::memset(raw, 1, bytes);
    c10::GetCPUAllocator()->raw_deallocate(raw);
  }
  at::Tensor grown = at::empty({10}, at::kFloat);
  grown.resize_({1 << 20}).fill_(2);
  EXPECT_EQ(grown[1 << 19].item<float>(), 2);
}

}  // namespace
}  // namespace trireme::torch_ext
