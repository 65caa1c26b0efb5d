// Memory that the ranks of a host can map: operations on it need no copy. One per process.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>

#include "trireme/ccl/bootstrap/forked_child.h"

namespace trireme::ccl {

// One allocation: a memfd, mapped here and by those peers that were handed its descriptor. Its first page tells them when it was freed.
struct SharedRegion {
  uint32_t id = 0;
  ProcessFd fd;
  std::byte* mapping = nullptr;
  size_t mapping_bytes = 0;

  std::byte* data() const;
  ~SharedRegion();
};

inline constexpr size_t kRegionHeaderBytes = 4096;
struct RegionHeader {
  std::atomic<uint32_t> freed;
};

// Threads may share it. Allocation costs a memfd and a mapping: it is for buffers that live long.
class SharedHeap {
 public:
  static SharedHeap& instance();

  void* allocate(size_t bytes);
  // Does nothing for null. Throws InvalidArgument for memory that is not from allocate().
  void release(void* data);
  // The region that holds all of [data, data + bytes), or null.
  std::shared_ptr<SharedRegion> find(const void* data, size_t bytes) const;

 private:
  mutable std::shared_mutex mutex_;
  std::map<const std::byte*, std::shared_ptr<SharedRegion>> regions_;  // by start of data
  std::atomic<size_t> count_{0};                                       // so that find() is free while there are none
  uint32_t next_id_ = 1;
};

}  // namespace trireme::ccl
