// The reduction as its definition reads: one element at a time, one source after the other.
#include <cmath>
#include <cstring>
#include <type_traits>

#include "trireme/base/error.h"
#include "trireme/base/float16.h"
#include "trireme/ccl/reduction/reducer.h"

namespace trireme::ccl {

namespace {

struct Truth {
  uint8_t byte;
};

template <class Storage>
auto widen(Storage x) {
  if constexpr (std::is_same_v<Storage, bfloat16> || std::is_same_v<Storage, float16>)
    return to_float(x);
  else if constexpr (std::is_same_v<Storage, Truth>)
    return x.byte != 0;
  else
    return x;
}

template <class Storage, class Accumulator>
Storage narrow(Accumulator x) {
  if constexpr (std::is_same_v<Storage, bfloat16>)
    return to_bfloat16(x);
  else if constexpr (std::is_same_v<Storage, float16>)
    return to_float16(x);
  else if constexpr (std::is_same_v<Storage, Truth>)
    return Truth{x};
  else
    return x;
}

[[noreturn]] void no_meaning(Reduction op) { throw InvalidArgument(str("no reference for ", name_of(op))); }

template <class T>
T combine_floating(Reduction op, T a, T b) {
  switch (op) {
    case Reduction::sum:
    case Reduction::avg: return a + b;
    case Reduction::prod: return a * b;
    case Reduction::min: return std::isnan(a) || a < b ? a : b;
    case Reduction::max: return std::isnan(a) || a > b ? a : b;
    default: no_meaning(op);
  }
}

// In uint64_t, so that nothing overflows but by wrapping; the conversion back to T keeps the low bits.
template <class T>
T combine_integer(Reduction op, T a, T b) {
  uint64_t x = static_cast<uint64_t>(a), y = static_cast<uint64_t>(b);
  switch (op) {
    case Reduction::sum:
    case Reduction::avg: return static_cast<T>(x + y);
    case Reduction::prod: return static_cast<T>(x * y);
    case Reduction::min: return a < b ? a : b;
    case Reduction::max: return a > b ? a : b;
    case Reduction::band: return static_cast<T>(x & y);
    case Reduction::bor: return static_cast<T>(x | y);
    case Reduction::bxor: return static_cast<T>(x ^ y);
    default: no_meaning(op);
  }
}

bool combine_boolean(Reduction op, bool a, bool b) {
  switch (op) {
    case Reduction::sum:
    case Reduction::max:
    case Reduction::bor: return a || b;
    case Reduction::prod:
    case Reduction::min:
    case Reduction::band: return a && b;
    case Reduction::bxor: return a != b;
    default: no_meaning(op);
  }
}

template <class T>
T combine(Reduction op, T a, T b) {
  if constexpr (std::is_same_v<T, bool>)
    return combine_boolean(op, a, b);
  else if constexpr (std::is_floating_point_v<T>)
    return combine_floating(op, a, b);
  else
    return combine_integer(op, a, b);
}

template <class T>
T divided(T x, int ranks) {
  if constexpr (std::is_floating_point_v<T>)
    return x / static_cast<T>(ranks);
  else if constexpr (std::is_signed_v<T>)
    return static_cast<T>(static_cast<int64_t>(x) / ranks);
  else
    return static_cast<T>(static_cast<uint64_t>(x) / static_cast<uint64_t>(ranks));
}

template <class T>
T at(const void* array, size_t i) {
  T value;
  std::memcpy(&value, static_cast<const char*>(array) + i * sizeof value, sizeof value);
  return value;
}

template <class In, class Out>
void reduce_as(Reduction op, int divisor, std::span<const void* const> sources, void* dst, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    auto result = widen(at<In>(sources[0], i));
    for (const void* source : sources.subspan(1)) result = combine(op, result, widen(at<In>(source, i)));
    if (divisor != 0) result = divided(result, divisor);
    Out out = narrow<Out>(result);
    std::memcpy(static_cast<char*>(dst) + i * sizeof out, &out, sizeof out);
  }
}

}  // namespace

void reduce_reference(DataType type, Reduction op, int ranks, std::span<const void* const> sources, void* dst, size_t count,
                      Stage stage) {
  bool final = stage == Stage::whole || stage == Stage::last;
  int divisor = op == Reduction::avg && final ? ranks : 0;
  auto same = [&]<class T>(T) { reduce_as<T, T>(op, divisor, sources, dst, count); };
  auto half = [&]<class T>(T) {
    switch (stage) {
      case Stage::whole: return reduce_as<T, T>(op, divisor, sources, dst, count);
      case Stage::first: return reduce_as<T, float>(op, divisor, sources, dst, count);
      case Stage::middle: return reduce_as<float, float>(op, divisor, sources, dst, count);
      case Stage::last: return reduce_as<float, T>(op, divisor, sources, dst, count);
    }
  };
  switch (type) {
    case DataType::int8: return same(int8_t{});
    case DataType::uint8: return same(uint8_t{});
    case DataType::int16: return same(int16_t{});
    case DataType::uint16: return same(uint16_t{});
    case DataType::int32: return same(int32_t{});
    case DataType::uint32: return same(uint32_t{});
    case DataType::int64: return same(int64_t{});
    case DataType::uint64: return same(uint64_t{});
    case DataType::float16: return half(float16{});
    case DataType::bfloat16: return half(bfloat16{});
    case DataType::float32: return same(float{});
    case DataType::float64: return same(double{});
    case DataType::boolean: return same(Truth{});
  }
}

}  // namespace trireme::ccl
