// CRC-32C (Castagnoli), as TFRecord files have it.
#pragma once

#include <cstdint>
#include <string_view>

namespace trireme::trainer {

uint32_t crc32c(std::string_view data);

// A CRC of data that holds CRCs is weak: TFRecord stores this instead.
uint32_t masked_crc32c(std::string_view data);

}  // namespace trireme::trainer
