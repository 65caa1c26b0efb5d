// Speed of the reduction by type, number of sources, size and ISA level, in bytes read and written per second.
#include <benchmark/benchmark.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "trireme/ccl/reduction/reducer.h"
#include "trireme/cpu/isa.h"

namespace trireme::ccl {
namespace {

struct Case {
  DataType type;
  Reduction op;
  size_t sources;
  size_t bytes;
  Access access;
};

class Buffers {
 public:
  Buffers(size_t count, size_t bytes) : bytes_(bytes) {
    for (size_t i = 0; i < count; ++i) {
      memory_.push_back(std::make_unique<char[]>(bytes + kAlignment));
      auto address = reinterpret_cast<uintptr_t>(memory_.back().get());
      pointers_.push_back(memory_.back().get() + (-address % kAlignment));
    }
  }
  // Small numbers in every type: 0x3c1c as bf16 or fp16, 0x3c1c3c1c as fp32.
  void fill() {
    for (void* pointer : pointers_)
      for (size_t i = 0; i + 1 < bytes_; i += 2) std::memcpy(static_cast<char*>(pointer) + i, "\x1c\x3c", 2);
  }
  void* operator[](size_t i) const { return pointers_[i]; }

 private:
  static constexpr size_t kAlignment = 4096;
  size_t bytes_;
  std::vector<std::unique_ptr<char[]>> memory_;
  std::vector<void*> pointers_;
};

void run(benchmark::State& state, Case c, cpu::Isa level) {
  cpu::ScopedIsa scope(level);
  size_t count = c.bytes / size_of(c.type);
  Buffers buffers(c.sources + 2, c.bytes);
  buffers.fill();
  void *dst = buffers[c.sources], *expected = buffers[c.sources + 1];
  std::vector<const void*> sources;
  for (size_t i = 0; i < c.sources; ++i) sources.push_back(buffers[i]);

  Reducer reducer(c.type, c.op, static_cast<int>(c.sources));
  reducer.reduce(sources, dst, count, Stage::whole, c.access);
  reduce_reference(c.type, c.op, static_cast<int>(c.sources), sources, expected, count, Stage::whole);
  if (std::memcmp(dst, expected, c.bytes) != 0) return state.SkipWithError("the result differs from the reference");

  for (auto _ : state) {
    reducer.reduce(sources, dst, count, Stage::whole, c.access);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * (c.sources + 1) * c.bytes));
}

void register_case(const Case& c) {
  for (cpu::Isa level : cpu::isa_levels()) {
    std::string name = std::string(name_of(c.type)) + "/" + std::string(name_of(c.op)) + "/" + std::to_string(c.sources) +
                       "_sources/" + std::to_string(c.bytes >> 10) + "KiB" + (c.access == Access::streaming ? "/streaming/" : "/") +
                       std::string(cpu::name_of(level));
    benchmark::RegisterBenchmark(name.c_str(), [c, level](benchmark::State& state) { run(state, c, level); });
  }
}

// In the second-level cache, where the node's tiles are, and in memory.
const bool registered = [] {
  for (DataType type : {DataType::float32, DataType::bfloat16, DataType::float16}) {
    for (size_t sources : {2, 8}) register_case({type, Reduction::sum, sources, 128 << 10, Access::cached});
    for (Access access : {Access::cached, Access::streaming}) register_case({type, Reduction::sum, 2, 64 << 20, access});
    register_case({type, Reduction::avg, 2, 128 << 10, Access::cached});
    register_case({type, Reduction::max, 2, 128 << 10, Access::cached});
  }
  for (DataType type : {DataType::int8, DataType::int32, DataType::int64, DataType::boolean})
    register_case({type, Reduction::sum, 2, 128 << 10, Access::cached});
  return true;
}();

}  // namespace
}  // namespace trireme::ccl
