#include "trireme/ccl/reduction/reducer.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/ccl/reduction/reduce_kernels.h"
#include "trireme/cpu/isa.h"

namespace trireme::ccl {

namespace {

// Integer averages are divided in a second pass over pieces that are still in the first-level cache.
constexpr size_t kAverageBytes = 8192;

bool is_half(DataType type) { return type == DataType::float16 || type == DataType::bfloat16; }

bool is_floating(DataType type) { return is_half(type) || type == DataType::float32 || type == DataType::float64; }

bool is_bitwise(Reduction op) { return op == Reduction::band || op == Reduction::bor || op == Reduction::bxor; }

bool is_final(Stage stage) { return stage == Stage::whole || stage == Stage::last; }

// Two's complement: sums, products and bits of a signed type are those of the unsigned one, and wrap without being
// undefined.
DataType unsigned_of(DataType type) {
  switch (type) {
    case DataType::int8: return DataType::uint8;
    case DataType::int16: return DataType::uint16;
    case DataType::int32: return DataType::uint32;
    case DataType::int64: return DataType::uint64;
    default: return type;
  }
}

// The truth values 0 and 1: a sum or maximum is their "or", a product or minimum their "and".
Reduction boolean_form(Reduction op) {
  switch (op) {
    case Reduction::sum:
    case Reduction::max: return Reduction::bor;
    case Reduction::prod:
    case Reduction::min: return Reduction::band;
    default: return op;
  }
}

// Reduces the many pairs of type and operation to the few that the kernels have.
void canonical(ReduceCall& call) {
  if (call.op == Reduction::avg) call.op = Reduction::sum;
  if (call.type == DataType::boolean) call.op = boolean_form(call.op);
  if (call.op != Reduction::min && call.op != Reduction::max) call.type = unsigned_of(call.type);
}

void run_kernel(ReduceCall call) {
  canonical(call);
  switch (cpu::isa()) {
    case cpu::Isa::scalar: return reduce_scalar(call);
    case cpu::Isa::avx2: return reduce_avx2(call);
    case cpu::Isa::avx512: return reduce_avx512(call);
  }
}

// memcpy because the caller's memory need not be aligned. The division is in 64 bits: an int8 may be divided by 200 ranks.
template <class T, class Wide>
void divide_each(char* values, size_t count, int divisor) {
  for (size_t i = 0; i < count; ++i) {
    T value;
    std::memcpy(&value, values + i * sizeof value, sizeof value);
    value = static_cast<T>(static_cast<Wide>(value) / static_cast<Wide>(divisor));
    std::memcpy(values + i * sizeof value, &value, sizeof value);
  }
}

void divide(DataType type, char* values, size_t count, int divisor) {
  switch (type) {
    case DataType::int8: return divide_each<int8_t, int64_t>(values, count, divisor);
    case DataType::uint8: return divide_each<uint8_t, uint64_t>(values, count, divisor);
    case DataType::int16: return divide_each<int16_t, int64_t>(values, count, divisor);
    case DataType::uint16: return divide_each<uint16_t, uint64_t>(values, count, divisor);
    case DataType::int32: return divide_each<int32_t, int64_t>(values, count, divisor);
    case DataType::uint32: return divide_each<uint32_t, uint64_t>(values, count, divisor);
    case DataType::int64: return divide_each<int64_t, int64_t>(values, count, divisor);
    case DataType::uint64: return divide_each<uint64_t, uint64_t>(values, count, divisor);
    default: TRIREME_ENFORCE(false, "no integer average of ", name_of(type));
  }
}

void average_integers(const ReduceCall& whole) {
  const size_t element = size_of(whole.type);
  const size_t piece = kAverageBytes / element;
  auto sources = std::make_unique<const void*[]>(whole.source_count);
  for (size_t done = 0; done < whole.count; done += piece) {
    for (size_t s = 0; s < whole.source_count; ++s) sources[s] = static_cast<const char*>(whole.sources[s]) + done * element;
    ReduceCall call = whole;
    call.sources = sources.get();
    call.dst = static_cast<char*>(whole.dst) + done * element;
    call.count = std::min(piece, whole.count - done);
    call.access = Access::cached;
    run_kernel(call);
    divide(whole.type, static_cast<char*>(call.dst), call.count, whole.divisor);
  }
}

// inout starts as the first source. If dst is also a later source, that one must stay as it is until its turn.
void reduce_custom(const CustomReduction& custom, DataType type, std::span<const void* const> sources, void* dst,
                   size_t count) {
  const size_t bytes = count * size_of(type);
  bool needed_later = std::ranges::find(sources.subspan(1), static_cast<const void*>(dst)) != sources.end();
  std::unique_ptr<char[]> temporary;
  if (needed_later) temporary = std::make_unique_for_overwrite<char[]>(bytes);
  void* inout = needed_later ? temporary.get() : dst;
  if (bytes > 0 && inout != sources[0]) std::memcpy(inout, sources[0], bytes);
  for (const void* in : sources.subspan(1)) custom(in, inout, count, type);
  if (bytes > 0 && needed_later) std::memcpy(dst, inout, bytes);
}

void check(DataType type, Reduction op, int ranks, const CustomReduction& custom) {
  if (ranks < 1) throw InvalidArgument(str("a reduction over ", ranks, " ranks"));
  if (op == Reduction::custom && !custom) throw InvalidArgument("a custom reduction needs a function");
  bool meaningless = (is_bitwise(op) && is_floating(type)) || (op == Reduction::avg && type == DataType::boolean);
  if (meaningless) throw InvalidArgument(str("the reduction ", name_of(op), " has no meaning for ", name_of(type)));
}

}  // namespace

Reducer::Reducer(DataType type, Reduction op, int ranks, CustomReduction custom)
    : type_(type), op_(op), ranks_(ranks), custom_(std::move(custom)) {
  check(type_, op_, ranks_, custom_);
}

size_t Reducer::element_bytes() const { return size_of(type_); }

// A custom function knows the storage type only.
size_t Reducer::accumulator_bytes() const {
  return is_half(type_) && op_ != Reduction::custom ? sizeof(float) : size_of(type_);
}

void Reducer::reduce(std::span<const void* const> sources, void* dst, size_t count, Stage stage, Access access) const {
  TRIREME_ENFORCE(!sources.empty(), "a reduction of no sources");
  if (count == 0) return;
  if (op_ == Reduction::custom) return reduce_custom(custom_, type_, sources, dst, count);
  int divisor = op_ == Reduction::avg && is_final(stage) ? ranks_ : 0;
  ReduceCall call{type_, op_, stage, sources.data(), sources.size(), dst, count, divisor, access};
  if (divisor != 0 && !is_floating(type_)) return average_integers(call);
  run_kernel(call);
}

}  // namespace trireme::ccl
