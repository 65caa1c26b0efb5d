// Writing and reading what travels between ranks: little-endian integers and byte strings with a length before them.
// A Reader never reads past its bytes, and checks every length against a maximum before anything is copied or allocated.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "trireme/base/error.h"

namespace trireme::ccl::wire {

// Bytes that are not what the protocol says. The connection they came from is of no further use.
class Malformed : public IoError {
 public:
  using IoError::IoError;
};

class Writer {
 public:
  template <std::unsigned_integral T>
  void integer(T value) {
    for (size_t i = 0; i < sizeof(T); ++i) bytes_.push_back(static_cast<char>(value >> (8 * i)));
  }
  // Without a length: the reader knows it.
  void raw(std::string_view data) { bytes_.append(data); }
  void raw(std::span<const uint8_t> data) { bytes_.append(reinterpret_cast<const char*>(data.data()), data.size()); }
  // A 32-bit length, then the bytes.
  void string(std::string_view data);

  size_t size() const { return bytes_.size(); }
  const std::string& bytes() const { return bytes_; }
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

// Refers to the bytes it was made from; so do the views it returns. Throws Malformed.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : rest_(bytes) {}

  template <std::unsigned_integral T>
  T integer() {
    std::string_view data = raw(sizeof(T));
    T value = 0;
    for (size_t i = 0; i < sizeof(T); ++i) value |= static_cast<T>(T{static_cast<uint8_t>(data[i])} << (8 * i));
    return value;
  }
  template <size_t N>
  std::array<uint8_t, N> array() {
    std::string_view data = raw(N);
    std::array<uint8_t, N> out;
    for (size_t i = 0; i < N; ++i) out[i] = static_cast<uint8_t>(data[i]);
    return out;
  }
  std::string_view raw(size_t bytes);
  std::string_view string(size_t max_bytes);

  size_t left() const { return rest_.size(); }
  // A message that is longer than its contents is malformed too.
  void expect_end() const;

 private:
  std::string_view rest_;
};

std::string to_hex(std::string_view bytes);
std::string to_hex(std::span<const uint8_t> bytes);
// Throws Malformed for an odd length or anything but 0-9 and a-f.
std::string from_hex(std::string_view hex);

// Text that came from a peer, made fit for an error message: printable ASCII only, at most `max_bytes` of it.
std::string printable(std::string_view text, size_t max_bytes = 200);

}  // namespace trireme::ccl::wire
