#include "trireme/ccl/node/shared_heap.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <cerrno>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/ccl/node/huge_pages.h"

namespace trireme::ccl {

std::byte* SharedRegion::data() const { return mapping + kRegionHeaderBytes; }

SharedRegion::~SharedRegion() {
  if (mapping) munmap(mapping, mapping_bytes);
}

SharedHeap& SharedHeap::instance() {
  static SharedHeap& heap = *new SharedHeap;  // never destroyed: a program's static objects may still use it
  return heap;
}

void* SharedHeap::allocate(size_t bytes) {
  auto region = std::make_shared<SharedRegion>();
  size_t total = kRegionHeaderBytes + (bytes + 4095) / 4096 * 4096;
  if (total < bytes) throw InvalidArgument(str("allocate_shared: bytes = ", bytes, " overflows"));
  region->fd = ProcessFd(UniqueFd(memfd_create("trireme-buffer", MFD_CLOEXEC)));
  if (!region->fd) throw IoError(errno_message("memfd_create for a shared buffer", errno));
  if (ftruncate(region->fd.get(), static_cast<off_t>(total)) != 0) throw IoError(errno_message("growing a shared buffer", errno));
  void* memory = map_on_huge_page(total, MAP_SHARED, region->fd.get());
  if (memory == MAP_FAILED) throw IoError(errno_message(str("mapping a shared buffer of ", bytes, " bytes"), errno));
  region->mapping = static_cast<std::byte*>(memory);
  region->mapping_bytes = total;
  madvise(memory, total, MADV_HUGEPAGE);

  std::unique_lock lock(mutex_);
  region->id = next_id_++;
  void* data = region->data();
  regions_.emplace(region->data(), std::move(region));
  count_.store(regions_.size(), std::memory_order_release);
  return data;
}

void SharedHeap::release(void* data) {
  if (data == nullptr) return;
  std::shared_ptr<SharedRegion> region;
  {
    std::unique_lock lock(mutex_);
    auto found = regions_.find(static_cast<std::byte*>(data));
    if (found == regions_.end()) throw InvalidArgument("release_shared: this memory was not allocated by allocate_shared");
    region = std::move(found->second);
    regions_.erase(found);
    count_.store(regions_.size(), std::memory_order_release);
  }
  if (!region->fd) return;  // a forked child's copy: the parent goes on using it
  reinterpret_cast<RegionHeader*>(region->mapping)->freed.store(1, std::memory_order_release);
  // Peers unmap it when they begin their next large collective, which may be long in coming: the memory goes back now. Where the kernel refuses
  // that, it goes back with the last mapping.
  fallocate(region->fd.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, kRegionHeaderBytes,
            static_cast<off_t>(region->mapping_bytes - kRegionHeaderBytes));
}

std::shared_ptr<SharedRegion> SharedHeap::find(const void* data, size_t bytes) const {
  if (count_.load(std::memory_order_acquire) == 0) return nullptr;
  auto address = static_cast<const std::byte*>(data);
  std::shared_lock lock(mutex_);
  auto after = regions_.upper_bound(address);
  if (after == regions_.begin()) return nullptr;
  const auto& region = std::prev(after)->second;
  return address + bytes <= region->mapping + region->mapping_bytes ? region : nullptr;
}

}  // namespace trireme::ccl
