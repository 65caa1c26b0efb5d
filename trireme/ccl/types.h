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

size_t size_of(DataType type);
std::string_view name_of(DataType type);
std::string_view name_of(Reduction op);

// inout[i] = combine(in[i], inout[i]) for `count` elements of `type`. Called in rank order.
using CustomReduction = std::function<void(const void* in, void* inout, size_t count, DataType type)>;

}  // namespace trireme::ccl
