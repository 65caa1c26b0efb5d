// A weights file that contains anything at all: it is read, every byte of it that a tensor claims can be touched, or it is
// refused.
#include "trireme/base/error.h"
#include "trireme/trainer/safetensors/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  using namespace trireme::trainer;
  try {
    const std::span<const std::byte> file(reinterpret_cast<const std::byte*>(data), bytes);
    size_t claimed = 0;
    volatile uint8_t sum = 0;
    for (const TensorEntry& entry : parse_safetensors(file, "fuzz").entries) {
      for (const std::byte byte : entry.data) sum = sum + static_cast<uint8_t>(byte);
      claimed += entry.data.size();
    }
    TRIREME_ENFORCE(claimed <= bytes);  // no byte belongs to two
  } catch (const trireme::InvalidArgument&) {
  }
  return 0;
}
