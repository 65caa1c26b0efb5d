// What the operations are about: element types and reductions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>

namespace trireme::ccl {

enum class DataType : uint8_t {
  int8, uint8, int16, uint16, int32, uint32, int64, uint64, float16, bfloat16, float32, float64, boolean
};
inline constexpr int kDataTypes = 13;

enum class Reduction : uint8_t { sum, prod, min, max, avg, band, bor, bxor, custom };
inline constexpr int kReductions = 9;

// Types and reductions arrive from other ranks, too: a number beyond the enumeration must not index a table.
[[noreturn]] void refuse_type(size_t number);
inline size_t size_of(DataType type) {
  constexpr uint8_t kBytes[kDataTypes] = {1, 1, 2, 2, 4, 4, 8, 8, 2, 2, 4, 8, 1};
  const auto index = static_cast<size_t>(type);
  if (index >= kDataTypes) refuse_type(index);
  return kBytes[index];
}
std::string_view name_of(DataType type);
std::string_view name_of(Reduction op);

// inout[i] = combine(in[i], inout[i]) for `count` elements of `type`. Called in rank order.
using CustomReduction = std::function<void(const void* in, void* inout, size_t count, DataType type)>;

}  // namespace trireme::ccl
