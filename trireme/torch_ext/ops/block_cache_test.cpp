#include "trireme/torch_ext/ops/block_cache.h"

#include <ATen/ops/empty.h>
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <string>
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
  void* behind = cache.allocate(kMiB);  // so that the first has no free neighbour
  EXPECT_TRUE(cache.free(first));
  EXPECT_FALSE(cache.free(first)) << "it is free already";
  EXPECT_FALSE(cache.free(static_cast<char*>(behind) + 1)) << "not the beginning of a block";
  void* again = cache.allocate(9 * kMiB);
  EXPECT_EQ(again, first);
  void* rest = cache.allocate(kMiB);  // what the smaller one left
  EXPECT_EQ(rest, static_cast<char*>(first) + 9 * kMiB);
  EXPECT_EQ(cache.stats().touched_bytes, 11 * kMiB);
  for (void* block : {again, rest, behind}) EXPECT_TRUE(cache.free(block));
  EXPECT_EQ(cache.stats().used_bytes, 0u);
  EXPECT_EQ(cache.allocate(200 * kMiB), first) << "free neighbours are one block";
}

TEST(BlockCache, LargerThanARegion) {
  BlockCache cache;
  constexpr size_t kBytes = 300 * kMiB;
  auto* block = static_cast<char*>(cache.allocate(kBytes));
  block[0] = block[kBytes - 1] = 1;
  auto* other = static_cast<char*>(cache.allocate(kMiB));
  other[0] = 2;
  EXPECT_TRUE(cache.free(block));
  EXPECT_TRUE(cache.free(other));
  EXPECT_EQ(other[0], 2) << "kept: nothing was asked for that it is in the way of";
}

TEST(BlockCache, WhatTheKernelRefusesIsNull) {
  BlockCache cache;
  constexpr size_t kBeyondAddresses = size_t{1} << 50;
  EXPECT_EQ(cache.allocate(kBeyondAddresses), nullptr);
  EXPECT_EQ(cache.allocate(SIZE_MAX), nullptr) << "rounded up it would be 0";
  EXPECT_EQ(cache.stats().used_bytes, 0u);
  EXPECT_NE(cache.allocate(kMiB), nullptr);
}

// Blocks of all sizes, a few kept in between: what they hold stays near what was in use, and no two of them overlap.
TEST(BlockCache, FragmentsGoBack) {
  BlockCache cache;
  std::vector<std::pair<char*, size_t>> held;
  uint32_t random = 1;
  for (int i = 0; i < 3000; ++i) {
    random = random * 1664525 + 1013904223;
    const size_t bytes = (random >> 8) % (24 * kMiB) + 1;
    if (held.size() < 12) {
      auto* block = static_cast<char*>(cache.allocate(bytes));
      block[0] = block[bytes - 1] = static_cast<char>(i);
      held.emplace_back(block, bytes);
    }
    if (held.size() == 12) {
      const size_t victim = (random >> 16) % held.size();
      EXPECT_EQ(held[victim].first[0], held[victim].first[held[victim].second - 1]);
      EXPECT_TRUE(cache.free(held[victim].first));
      held.erase(held.begin() + static_cast<std::ptrdiff_t>(victim));
    }
    const BlockCache::Stats stats = cache.stats();
    ASSERT_LE(stats.resident_bytes, stats.most_used_bytes + stats.most_used_bytes / 8);
    ASSERT_LE(stats.used_bytes, stats.resident_bytes);
  }
  for (const auto& each : held) EXPECT_TRUE(cache.free(each.first));
  EXPECT_EQ(cache.stats().used_bytes, 0u);
}

TEST(BlockCache, StepsOfAnyLengthTouchNothingNew) {
  BlockCache cache;
  const auto step = [&](size_t tokens) {
    std::vector<void*> blocks;
    for (size_t width : {384, 1536, 1152, 384}) blocks.push_back(cache.allocate(tokens * width * 4));
    for (void* block : blocks) cache.free(block);
  };
  step(2000);
  const size_t touched = cache.stats().touched_bytes;
  for (size_t tokens = 700; tokens < 2000; tokens += 7) step(tokens);
  EXPECT_EQ(cache.stats().touched_bytes, touched);
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

// The child of a process with a thread in the cache at any moment finds it unlocked.
TEST(BlockCache, AForkFindsItWhole) {
  install_block_cache();
  std::atomic<bool> end = false;
  std::thread busy([&] {
    while (!end) at::empty({1 << 20}, at::kFloat);
  });
  for (int i = 0; i < 50; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::alarm(20);
      c10::GetCPUAllocator()->raw_deallocate(c10::GetCPUAllocator()->raw_allocate(4 * kMiB));
      ::_exit(0);
    }
    int status = -1;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  end = true;
  busy.join();
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

// accelerate's find_executable_batch_size knows it by these words.
TEST(BlockCache, OutOfMemoryIsTorchsError) {
  install_block_cache();
  std::vector<int64_t> elements{int64_t{100'000'000'000'000}};  // 400 TB: more than addresses
  int overcommit = 0;
  std::ifstream("/proc/sys/vm/overcommit_memory") >> overcommit;
  if (overcommit != 1) elements.push_back(1'000'000'000'000);  // 4 TB: more than memory, which only such a kernel gives
  for (int64_t count : elements) {
    try {
      at::empty({count}, at::kFloat);
      ADD_FAILURE() << count << " floats: there is room for them";
    } catch (const std::exception& error) {
      EXPECT_NE(std::string(error.what()).find("DefaultCPUAllocator: can't allocate memory"), std::string::npos)
          << error.what();
    }
  }
  EXPECT_EQ(at::empty({3 << 20}, at::kFloat).fill_(1).sum().item<float>(), 3 << 20);
}

}  // namespace
}  // namespace trireme::torch_ext
