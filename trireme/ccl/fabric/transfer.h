// One message on its way: what an algorithm posts and then awaits.
#pragma once

#include <cstddef>
#include <cstdint>

#include "trireme/ccl/operation.h"
#include "trireme/ccl/signature.h"

namespace trireme::ccl {

// Tags. Collectives use the number of the operation and a step within it, so nothing of one operation can match another's;
// point-to-point messages use the caller's tag.
inline constexpr uint64_t kCollectiveTag = uint64_t{1} << 63;
inline uint64_t collective_tag(uint64_t number, uint32_t step) { return kCollectiveTag | (number << 16) | step; }
inline bool is_collective(uint64_t tag) { return (tag & kCollectiveTag) != 0; }
inline uint64_t operation_of_tag(uint64_t tag) { return (tag & ~kCollectiveTag) >> 16; }

// Posted once, then left alone until `done`. The poster owns it and the memory it names.
struct Transfer {
  int peer = kAnySource;  // a receive from kAnySource learns here who sent it
  uint64_t tag = 0;
  bool any_tag = false;
  std::byte* data = nullptr;
  size_t bytes = 0;  // of a point-to-point receive: room; then what came
  bool exact = true; // the message must have exactly `bytes`
  Signature signature;
  uint64_t number = 0;  // of the operation, for messages
  bool done = false;

  // The protocol's own.
  size_t moved = 0;
};

}  // namespace trireme::ccl
