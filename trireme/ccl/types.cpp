#include "trireme/ccl/types.h"

#include "trireme/base/error.h"

namespace trireme::ccl {

namespace {

struct TypeRow {
  std::string_view name;
  size_t bytes;
};

// In the order of DataType.
constexpr TypeRow kTypes[kDataTypes] = {
    {"int8", 1},   {"uint8", 1},   {"int16", 2},    {"uint16", 2},  {"int32", 4},   {"uint32", 4},  {"int64", 8},
    {"uint64", 8}, {"float16", 2}, {"bfloat16", 2}, {"float32", 4}, {"float64", 8}, {"boolean", 1},
};

// In the order of Reduction.
constexpr std::string_view kReductionNames[kReductions] = {"sum",  "prod", "min",  "max",   "avg",
                                                           "band", "bor",  "bxor", "custom"};

// Types and reductions arrive from other ranks, too: a number beyond the enumeration must not index the table.
const TypeRow& row(DataType type) {
  auto index = static_cast<size_t>(type);
  TRIREME_ENFORCE(index < kDataTypes, "data type ", index);
  return kTypes[index];
}

}  // namespace

size_t size_of(DataType type) { return row(type).bytes; }

std::string_view name_of(DataType type) { return row(type).name; }

std::string_view name_of(Reduction op) {
  auto index = static_cast<size_t>(op);
  TRIREME_ENFORCE(index < kReductions, "reduction ", index);
  return kReductionNames[index];
}

}  // namespace trireme::ccl
