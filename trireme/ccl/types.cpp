#include "trireme/ccl/types.h"

#include "trireme/base/error.h"

namespace trireme::ccl {

namespace {

// In the order of DataType.
constexpr std::string_view kTypeNames[kDataTypes] = {"int8",   "uint8",   "int16",    "uint16",  "int32",   "uint32", "int64",
                                                     "uint64", "float16", "bfloat16", "float32", "float64", "boolean"};

// In the order of Reduction.
constexpr std::string_view kReductionNames[kReductions] = {"sum",  "prod", "min",  "max",   "avg",
                                                           "band", "bor",  "bxor", "custom"};

}  // namespace

void refuse_type(size_t number) { enforce_failed("number < kDataTypes", __FILE__, __LINE__, str("data type ", number)); }

std::string_view name_of(DataType type) {
  auto index = static_cast<size_t>(type);
  if (index >= kDataTypes) refuse_type(index);
  return kTypeNames[index];
}

std::string_view name_of(Reduction op) {
  auto index = static_cast<size_t>(op);
  TRIREME_ENFORCE(index < kReductions, "reduction ", index);
  return kReductionNames[index];
}

}  // namespace trireme::ccl
