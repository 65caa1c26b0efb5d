// Unpredictable bytes from the kernel, for secrets and nonces.
#pragma once

#include <cstdint>
#include <span>

namespace trireme::ccl {

void fill_random(std::span<uint8_t> bytes);

// random<Nonce>(): a std::array of bytes nobody has seen before.
template <class Array>
Array random() {
  Array bytes;
  fill_random(bytes);
  return bytes;
}

}  // namespace trireme::ccl
