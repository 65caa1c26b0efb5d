#include "trireme/ccl/reduction/reducer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/float16.h"
#include "trireme/cpu/isa.h"

namespace trireme::ccl {
namespace {

using Bytes = std::vector<unsigned char>;

constexpr Stage kStages[] = {Stage::whole, Stage::first, Stage::middle, Stage::last};
constexpr size_t kMaxSources = 9;
// Beyond one vector of every level and type, and odd sizes on both sides of each.
constexpr size_t kMaxCount = 67;
constexpr unsigned char kUntouched = 0xa5;

bool is_half(DataType type) { return type == DataType::float16 || type == DataType::bfloat16; }

bool has_meaning(DataType type, Reduction op) {
  bool floating = is_half(type) || type == DataType::float32 || type == DataType::float64;
  bool bitwise = op == Reduction::band || op == Reduction::bor || op == Reduction::bxor;
  if (op == Reduction::custom) return false;
  return !(floating && bitwise) && !(type == DataType::boolean && op == Reduction::avg);
}

std::vector<Reduction> reductions_of(DataType type) {
  std::vector<Reduction> result;
  for (int op = 0; op < kReductions; ++op)
    if (has_meaning(type, static_cast<Reduction>(op))) result.push_back(static_cast<Reduction>(op));
  return result;
}

// What the bytes of a source (or result) are at a stage.
DataType input_type(DataType type, Stage stage) {
  bool accumulators = stage == Stage::middle || stage == Stage::last;
  return is_half(type) && accumulators ? DataType::float32 : type;
}
DataType output_type(DataType type, Stage stage) {
  bool accumulators = stage == Stage::first || stage == Stage::middle;
  return is_half(type) && accumulators ? DataType::float32 : type;
}

template <class T>
void put(Bytes& to, size_t i, T value) {
  std::memcpy(to.data() + i * sizeof value, &value, sizeof value);
}

template <class T>
T get(const unsigned char* from, size_t i) {
  T value;
  std::memcpy(&value, from + i * sizeof value, sizeof value);
  return value;
}

void put_number(Bytes& to, DataType type, size_t i, double value) {
  switch (type) {
    case DataType::float16: return put(to, i, to_float16(static_cast<float>(value)));
    case DataType::bfloat16: return put(to, i, to_bfloat16(static_cast<float>(value)));
    case DataType::float32: return put(to, i, static_cast<float>(value));
    default: return put(to, i, value);
  }
}

double get_number(const unsigned char* from, DataType type, size_t i) {
  switch (type) {
    case DataType::float16: return to_float(get<float16>(from, i));
    case DataType::bfloat16: return to_float(get<bfloat16>(from, i));
    case DataType::float32: return get<float>(from, i);
    case DataType::float64: return get<double>(from, i);
    default: return 0;
  }
}

// Floating point: numbers whose sums cancel and round, and now and then a special one. Everything else: any bits.
Bytes random_elements(DataType type, size_t count, std::mt19937& random) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const double specials[] = {std::nan(""), kInfinity, -kInfinity, 0.0, -0.0, 6e-8, -1e-39, 65504.0, 3.3e38};
  std::uniform_real_distribution<double> numbers(-2, 2);
  Bytes bytes(count * size_of(type));
  if (!is_half(type) && type != DataType::float32 && type != DataType::float64) {
    for (auto& byte : bytes) byte = static_cast<unsigned char>(random());
    if (type == DataType::boolean)
      for (auto& byte : bytes) byte = byte < 100 ? 0 : byte < 200 ? 1 : byte;
    return bytes;
  }
  for (size_t i = 0; i < count; ++i)
    put_number(bytes, type, i, random() % 16 == 0 ? specials[random() % std::size(specials)] : numbers(random));
  return bytes;
}

// The sources of one reduction, each at `offset` bytes from an aligned address.
struct Sources {
  Sources(DataType type, size_t n, size_t count, size_t offset = 0, unsigned seed = 1) {
    std::mt19937 random(seed);
    for (size_t i = 0; i < n; ++i) {
      Bytes elements = random_elements(type, count, random);
      memory.emplace_back(offset, 0);
      memory.back().insert(memory.back().end(), elements.begin(), elements.end());
    }
    for (auto& bytes : memory) pointers.push_back(bytes.data() + offset);
  }
  std::vector<Bytes> memory;
  std::vector<const void*> pointers;
};

Bytes reference(DataType type, Reduction op, int ranks, const std::vector<const void*>& sources, size_t count, Stage stage) {
  Bytes result(count * size_of(output_type(type, stage)));
  reduce_reference(type, op, ranks, sources, result.data(), count, stage);
  return result;
}

// Bit for bit; but which of two NaNs a sum keeps is the instruction's choice.
void expect_same(DataType type, const unsigned char* actual, const Bytes& expected, size_t count, const std::string& what) {
  const size_t element = size_of(type);
  for (size_t i = 0; i < count; ++i) {
    if (std::memcmp(actual + i * element, expected.data() + i * element, element) == 0) continue;
    double a = get_number(actual, type, i), e = get_number(expected.data(), type, i);
    ASSERT_TRUE(std::isnan(a) && std::isnan(e)) << what << ": element " << i << " is " << a << ", not " << e;
  }
}

std::string describe(cpu::Isa level, DataType type, Reduction op, Stage stage, size_t sources, size_t count) {
  return str(cpu::name_of(level), " ", name_of(op), " of ", name_of(type), ", stage ", static_cast<int>(stage), ", ",
             sources, " sources, ", count, " elements");
}

class ReducerTest : public testing::TestWithParam<DataType> {};

std::vector<DataType> all_types() {
  std::vector<DataType> types;
  for (int i = 0; i < kDataTypes; ++i) types.push_back(static_cast<DataType>(i));
  return types;
}

INSTANTIATE_TEST_SUITE_P(Types, ReducerTest, testing::ValuesIn(all_types()),
                         [](const auto& info) { return std::string(name_of(info.param)); });

// Sizes 0 to 67, 1 to 9 sources, every stage; nothing beyond the last element is written.
TEST_P(ReducerTest, EqualsReference) {
  const DataType type = GetParam();
  for (Stage stage : kStages) {
    const DataType out = output_type(type, stage);
    for (size_t n = 1; n <= kMaxSources; ++n) {
      Sources sources(input_type(type, stage), n, kMaxCount, 0, static_cast<unsigned>(n));
      for (Reduction op : reductions_of(type)) {
        Reducer reducer(type, op, static_cast<int>(n));
        Bytes expected = reference(type, op, static_cast<int>(n), sources.pointers, kMaxCount, stage);
        for (cpu::Isa level : cpu::isa_levels()) {
          cpu::ScopedIsa scope(level);
          for (size_t count = 0; count <= kMaxCount; ++count) {
            Bytes actual(kMaxCount * size_of(out), kUntouched);
            reducer.reduce(sources.pointers, actual.data(), count, stage);
            expect_same(out, actual.data(), expected, count, describe(level, type, op, stage, n, count));
            for (size_t i = count * size_of(out); i < actual.size(); ++i) ASSERT_EQ(actual[i], kUntouched);
            if (HasFatalFailure()) return;
          }
        }
      }
    }
  }
}

// Several blocks, any alignment of sources and result, in every way of access.
TEST_P(ReducerTest, UnalignedAndStreaming) {
  const DataType type = GetParam();
  constexpr size_t kCount = 1021;
  for (Stage stage : kStages) {
    const DataType out = output_type(type, stage);
    for (size_t offset : {0, 1, 2, 4, 8, 30, 60, 63}) {
      Sources sources(input_type(type, stage), 3, kCount, offset);
      for (Reduction op : reductions_of(type)) {
        Bytes expected = reference(type, op, 3, sources.pointers, kCount, stage);
        for (cpu::Isa level : cpu::isa_levels()) {
          cpu::ScopedIsa scope(level);
          for (Access access : {Access::cached, Access::streaming, Access::interleaved}) {
            Bytes actual(offset + kCount * size_of(out) + 64, kUntouched);
            Reducer(type, op, 3).reduce(sources.pointers, actual.data() + offset, kCount, stage, access);
            expect_same(out, actual.data() + offset, expected, kCount, describe(level, type, op, stage, 3, kCount));
            for (size_t i = 0; i < 64; ++i) ASSERT_EQ(actual[actual.size() - 1 - i], kUntouched);
            for (size_t i = 0; i < offset; ++i) ASSERT_EQ(actual[i], kUntouched);
            if (HasFatalFailure()) return;
          }
        }
      }
    }
  }
}

TEST_P(ReducerTest, ResultMayBeAnyOneSource) {
  const DataType type = GetParam();
  for (size_t n = 1; n <= kMaxSources; ++n) {
    for (size_t alias = 0; alias < n; ++alias) {
      for (size_t count : {1, 31, 2999, 3000}) {
        for (Reduction op : reductions_of(type)) {
          for (cpu::Isa level : cpu::isa_levels()) {
            cpu::ScopedIsa scope(level);
            Sources sources(type, n, count);
            Bytes expected = reference(type, op, static_cast<int>(n), sources.pointers, count, Stage::whole);
            unsigned char* dst = sources.memory[alias].data();
            Reducer(type, op, static_cast<int>(n)).reduce(sources.pointers, dst, count, Stage::whole, count == 3000 ? Access::streaming : Access::interleaved);
            expect_same(type, dst, expected, count, describe(level, type, op, Stage::whole, n, count));
            if (HasFatalFailure()) return;
          }
        }
      }
    }
  }
}

// The bits of an element do not depend on where a buffer is cut.
TEST_P(ReducerTest, PiecesEqualTheWhole) {
  const DataType type = GetParam();
  constexpr size_t kCount = 700;
  const size_t element = size_of(type);
  Sources sources(type, 4, kCount);
  for (Reduction op : reductions_of(type)) {
    Reducer reducer(type, op, 4);
    Bytes whole(kCount * element), pieces(kCount * element);
    reducer.reduce(sources.pointers, whole.data(), kCount);
    std::mt19937 random(7);
    for (size_t begin = 0; begin < kCount;) {
      size_t count = std::min<size_t>(1 + random() % 150, kCount - begin);
      std::vector<const void*> part;
      for (auto& bytes : sources.memory) part.push_back(bytes.data() + begin * element);
      constexpr Access kAll[] = {Access::cached, Access::streaming, Access::interleaved};
      reducer.reduce(part, pieces.data() + begin * element, count, Stage::whole, kAll[random() % 3]);
      begin += count;
    }
    EXPECT_EQ(whole, pieces) << name_of(op);
  }
}

// Two hosts of two ranks: the sum of partial sums is rounded once, and avg divides once.
TEST(ReducerStages, PartialResultsKeepTheAccumulator) {
  // 1 + 2^-8 is not a bf16 number: rounding each partial result would lose both halves of the 2^-7.
  const bfloat16 one = to_bfloat16(1.0f), small = to_bfloat16(0x1p-8f), zero = to_bfloat16(0.0f);
  Reducer sum(DataType::bfloat16, Reduction::sum, 4);
  float host_a, host_b;
  const void* ranks_a[] = {&one, &small};
  const void* ranks_b[] = {&zero, &small};
  sum.reduce(ranks_a, &host_a, 1, Stage::first);
  sum.reduce(ranks_b, &host_b, 1, Stage::first);
  const void* hosts[] = {&host_a, &host_b};
  bfloat16 result;
  sum.reduce(hosts, &result, 1, Stage::last);
  EXPECT_EQ(to_float(result), 1.0f + 0x1p-7f);

  Reducer avg(DataType::bfloat16, Reduction::avg, 4);
  avg.reduce(ranks_a, &host_a, 1, Stage::first);
  EXPECT_EQ(host_a, 1.0f + 0x1p-8f);
  avg.reduce(hosts, &result, 1, Stage::last);
  EXPECT_EQ(to_float(result), (1.0f + 0x1p-7f) / 4);
}

// The rounding of P - 1 additions in fp32, and one rounding to bf16: |result - S| <= 2^-8 |S| + P 2^-24 sum |x_i|.
TEST(ReducerAccuracy, Bfloat16SumStaysWithinItsBound) {
  constexpr size_t kCount = 2000;
  std::mt19937 random(3);
  std::normal_distribution<float> numbers;
  for (size_t n : {2, 3, 8, 64}) {
    std::vector<std::vector<bfloat16>> memory(n, std::vector<bfloat16>(kCount));
    std::vector<const void*> sources;
    for (auto& source : memory) {
      for (auto& x : source) x = to_bfloat16(numbers(random));
      sources.push_back(source.data());
    }
    for (cpu::Isa level : cpu::isa_levels()) {
      cpu::ScopedIsa scope(level);
      std::vector<bfloat16> result(kCount);
      Reducer(DataType::bfloat16, Reduction::sum, static_cast<int>(n)).reduce(sources, result.data(), kCount);
      for (size_t i = 0; i < kCount; ++i) {
        double exact = 0, magnitude = 0;
        for (auto& source : memory) {
          exact += to_float(source[i]);
          magnitude += std::abs(to_float(source[i]));
        }
        double bound = 0x1p-8 * std::abs(exact) + static_cast<double>(n) * 0x1p-24 * magnitude;
        ASSERT_LE(std::abs(to_float(result[i]) - exact), bound) << n << " sources, element " << i;
      }
    }
  }
}

template <class T>
T reduce_values(DataType type, Reduction op, std::vector<T> values, int ranks) {
  std::vector<const void*> sources;
  for (auto& value : values) sources.push_back(&value);
  T result;
  Reducer(type, op, ranks).reduce(sources, &result, 1);
  return result;
}

TEST(ReducerMeaning, NanPropagatesThroughMinAndMax) {
  const float nan = std::nanf("");
  for (cpu::Isa level : cpu::isa_levels()) {
    cpu::ScopedIsa scope(level);
    for (Reduction op : {Reduction::min, Reduction::max}) {
      EXPECT_TRUE(std::isnan(reduce_values<float>(DataType::float32, op, {nan, 1, 2}, 3)));
      EXPECT_TRUE(std::isnan(reduce_values<float>(DataType::float32, op, {1, nan, 2}, 3)));
      EXPECT_TRUE(std::isnan(reduce_values<float>(DataType::float32, op, {1, 2, nan}, 3)));
    }
    EXPECT_EQ(reduce_values<float>(DataType::float32, Reduction::max, {1, 3, 2}, 3), 3);
    EXPECT_EQ(reduce_values<float>(DataType::float32, Reduction::min, {1, -3, 2}, 3), -3);
  }
}

// Every NaN of bf16, signalling ones and full payloads included, is NaN after a sum, a maximum and a plain copy.
TEST(ReducerMeaning, EveryBfloat16NanStaysNan) {
  std::vector<bfloat16> nans, ones;
  for (int bits = 0; bits < 0x10000; ++bits)
    if ((bits & 0x7fff) > 0x7f80) nans.push_back({static_cast<uint16_t>(bits)});
  ones.assign(nans.size(), to_bfloat16(1));
  const void* both[] = {nans.data(), ones.data()};
  for (cpu::Isa level : cpu::isa_levels()) {
    cpu::ScopedIsa scope(level);
    for (Reduction op : {Reduction::sum, Reduction::max, Reduction::avg}) {
      for (size_t n : {1, 2}) {
        std::vector<bfloat16> result(nans.size());
        Reducer(DataType::bfloat16, op, 2).reduce(std::span(both).first(n), result.data(), result.size());
        for (size_t i = 0; i < result.size(); ++i) ASSERT_TRUE(std::isnan(to_float(result[i]))) << nans[i].bits;
      }
    }
  }
}

TEST(ReducerMeaning, IntegersWrapAndAveragesTruncateTowardZero) {
  EXPECT_EQ(reduce_values<int8_t>(DataType::int8, Reduction::sum, {100, 100}, 2), -56);
  EXPECT_EQ(reduce_values<int32_t>(DataType::int32, Reduction::avg, {-4, -3}, 2), -3);
  EXPECT_EQ(reduce_values<int32_t>(DataType::int32, Reduction::avg, {4, 3}, 2), 3);
  EXPECT_EQ(reduce_values<uint64_t>(DataType::uint64, Reduction::avg, {~uint64_t{0}, 0}, 2), ~uint64_t{0} / 2);
  // More ranks than the type can count.
  EXPECT_EQ(reduce_values<int8_t>(DataType::int8, Reduction::avg, {100, 20}, 200), 0);
}

TEST(ReducerMeaning, BooleansAreTruthValues) {
  auto reduce = [](Reduction op, uint8_t a, uint8_t b) { return reduce_values<uint8_t>(DataType::boolean, op, {a, b}, 2); };
  EXPECT_EQ(reduce(Reduction::sum, 1, 1), 1);
  EXPECT_EQ(reduce(Reduction::prod, 2, 1), 1);
  EXPECT_EQ(reduce(Reduction::max, 0, 0), 0);
  EXPECT_EQ(reduce(Reduction::bxor, 1, 3), 0);
}

TEST(ReducerErrors, PairsWithoutMeaningAreRefused) {
  for (DataType type : {DataType::float16, DataType::bfloat16, DataType::float32, DataType::float64})
    for (Reduction op : {Reduction::band, Reduction::bor, Reduction::bxor})
      EXPECT_THROW(Reducer(type, op, 2), InvalidArgument);
  EXPECT_THROW(Reducer(DataType::boolean, Reduction::avg, 2), InvalidArgument);
  EXPECT_THROW(Reducer(DataType::int32, Reduction::custom, 2), InvalidArgument);
  EXPECT_THROW(Reducer(DataType::int32, Reduction::sum, 0), InvalidArgument);
}

TEST(ReducerErrors, NoSourcesIsABug) {
  float result;
  EXPECT_THROW(Reducer(DataType::float32, Reduction::sum, 1).reduce({}, &result, 1), InternalError);
}

// x, y -> 10 y + x shows the order: 1, 2, 3 become 123.
TEST(ReducerCustom, RunsInOrderWhateverTheResultAliases) {
  CustomReduction append = [](const void* in, void* inout, size_t count, DataType) {
    for (size_t i = 0; i < count; ++i)
      static_cast<int32_t*>(inout)[i] = 10 * static_cast<int32_t*>(inout)[i] + static_cast<const int32_t*>(in)[i];
  };
  Reducer reducer(DataType::int32, Reduction::custom, 3, append);
  for (int alias = -1; alias < 3; ++alias) {
    std::vector<std::vector<int32_t>> values(3, std::vector<int32_t>(5));
    for (int r = 0; r < 3; ++r) values[r].assign(5, r + 1);
    const void* sources[] = {values[0].data(), values[1].data(), values[2].data()};
    std::vector<int32_t> apart(5);
    std::vector<int32_t>& dst = alias < 0 ? apart : values[alias];
    reducer.reduce(sources, dst.data(), 5);
    EXPECT_EQ(dst, std::vector<int32_t>(5, 123)) << "dst is source " << alias;
  }
}

TEST(ReducerSizes, AccumulatorsOfHalvesAreFloats) {
  EXPECT_EQ(Reducer(DataType::bfloat16, Reduction::sum, 2).accumulator_bytes(), 4u);
  EXPECT_EQ(Reducer(DataType::float16, Reduction::max, 2).accumulator_bytes(), 4u);
  EXPECT_EQ(Reducer(DataType::int8, Reduction::sum, 2).accumulator_bytes(), 1u);
  EXPECT_EQ(Reducer(DataType::float64, Reduction::sum, 2).accumulator_bytes(), 8u);
  // A custom function knows the storage type only.
  auto nothing = [](const void*, void*, size_t, DataType) {};
  EXPECT_EQ(Reducer(DataType::bfloat16, Reduction::custom, 2, nothing).accumulator_bytes(), 2u);
}

}  // namespace
}  // namespace trireme::ccl
