// The two 16-bit floating-point types, as bit patterns. The API does no arithmetic on them: conversions are the program's.
#pragma once

#include <cstdint>
#include <cstring>
#include <sstream>
#include <string>

namespace ccl {
inline namespace v1 {

struct float16 {
  constexpr float16() : data(0) {}
  constexpr float16(uint16_t bits) : data(bits) {}
  uint16_t get_data() const { return data; }
  friend bool operator==(const float16& a, const float16& b) { return a.data == b.data; }
  friend bool operator!=(const float16& a, const float16& b) { return a.data != b.data; }

 private:
  uint16_t data;
} __attribute__((packed));

struct bfloat16 {
  constexpr bfloat16() : data(0) {}
  constexpr bfloat16(uint16_t bits) : data(bits) {}
  uint16_t get_data() const { return data; }
  friend bool operator==(const bfloat16& a, const bfloat16& b) { return a.data == b.data; }
  friend bool operator!=(const bfloat16& a, const bfloat16& b) { return a.data != b.data; }

 private:
  uint16_t data;
} __attribute__((packed));

}  // namespace v1
}  // namespace ccl
