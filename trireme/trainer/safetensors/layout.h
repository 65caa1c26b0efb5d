// What reader and writer must agree on.
#pragma once

#include <optional>

#include "trireme/trainer/safetensors/safetensors.h"

namespace trireme::trainer {

inline constexpr size_t kLengthBytes = 8;
// As the format's own reader limits it: a header is held in memory.
inline constexpr uint64_t kMaxHeaderBytes = 100'000'000;
inline constexpr std::string_view kMetadataKey = "__metadata__";

// Bytes that a tensor takes. Nothing if a dimension is negative, the product overflows or does not end on a byte.
std::optional<uint64_t> tensor_bytes(Dtype dtype, const std::vector<int64_t>& shape);

}  // namespace trireme::trainer
