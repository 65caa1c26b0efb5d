#include <algorithm>
#include <array>

#include "trireme/trainer/safetensors/safetensors.h"

namespace trireme::trainer {
namespace {

struct Row {
  std::string_view name;
  size_t bits;
};

// By the value of Dtype.
constexpr std::array<Row, 22> kRows = {
    {{"BOOL", 8},    {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6},     {"U8", 8},          {"I8", 8},
     {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"I16", 16},
     {"U16", 16},    {"F16", 16},    {"BF16", 16},   {"I32", 32},        {"U32", 32},        {"F32", 32},
     {"C64", 64},    {"F64", 64},    {"I64", 64},    {"U64", 64}}};
static_assert(kRows.size() == static_cast<size_t>(Dtype::u64) + 1);

}  // namespace

std::string_view dtype_name(Dtype dtype) { return kRows[static_cast<size_t>(dtype)].name; }

size_t dtype_bits(Dtype dtype) { return kRows[static_cast<size_t>(dtype)].bits; }

std::optional<Dtype> find_dtype(std::string_view name) {
  const auto found = std::find_if(kRows.begin(), kRows.end(), [&](const Row& row) { return row.name == name; });
  if (found == kRows.end()) return std::nullopt;
  return static_cast<Dtype>(found - kRows.begin());
}

}  // namespace trireme::trainer
