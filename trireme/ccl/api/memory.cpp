#include "oneapi/ccl/memory.hpp"

#include <utility>

#include "trireme/base/error.h"
#include "trireme/ccl/api/errors.h"
#include "trireme/ccl/api/handles.h"

namespace ccl::inline v1 {
namespace {

void check_registration(const communicator& comm, const void* buffer, size_t size) {
  detail::access::state(comm).get();
  if (buffer == nullptr && size != 0) throw trireme::InvalidArgument(trireme::str("buffer is null, but its size is ", size));
}

}  // namespace

void mem_alloc(const stream&, size_t size, void** ptr) {
  detail::translating("mem_alloc", [&] {
    if (ptr == nullptr) throw trireme::InvalidArgument("ptr is null");
    *ptr = trireme::ccl::Communicator::allocate_shared(size);
  });
}

void mem_free(const stream&, void* ptr) {
  detail::translating("mem_free", [&] {
    if (ptr != nullptr) trireme::ccl::Communicator::release_shared(ptr);
  });
}

void comm_register(const communicator& comm, void* buffer, size_t size, void** handle) {
  detail::translating("comm_register", [&] {
    check_registration(comm, buffer, size);
    if (handle == nullptr) throw trireme::InvalidArgument("handle is null");
    *handle = buffer;
  });
}

void comm_deregister(const communicator& comm, void*) {
  detail::translating("comm_deregister", [&] { check_registration(comm, nullptr, 0); });
}

window::window(void* buffer) : buffer_(buffer) {}
window::window(window&& other) noexcept : buffer_(std::exchange(other.buffer_, nullptr)) {}
window& window::operator=(window&& other) noexcept {
  std::swap(buffer_, other.buffer_);
  return *this;
}
window::~window() = default;

window comm_window_register(const communicator& comm, void* buffer, size_t size, int win_flags) {
  return detail::translating("comm_window_register", [&] {
    check_registration(comm, buffer, size);
    if (win_flags != CCL_WIN_DEFAULT && win_flags != CCL_WIN_COLL_SYMMETRIC) {
      throw trireme::InvalidArgument(
          trireme::str("win_flags = ", win_flags, " is neither CCL_WIN_DEFAULT nor CCL_WIN_COLL_SYMMETRIC"));
    }
    return detail::access::make_window(buffer);
  });
}

void comm_window_deregister(const communicator& comm, window& win) {
  detail::translating("comm_window_deregister", [&] {
    check_registration(comm, nullptr, 0);
    detail::access::buffer(win) = nullptr;
  });
}

window_t comm_window_register_v2(const communicator&, void*, size_t, int) { detail::needs_device("comm_window_register_v2"); }
void comm_window_deregister(const communicator&, window_t&) { detail::needs_device("comm_window_deregister"); }
void get_peer_device_pointer(window_t, size_t, int, void**) { detail::needs_device("get_peer_device_pointer"); }
void get_lsa_device_pointer(window_t, size_t, int, void**) { detail::needs_device("get_lsa_device_pointer"); }
void get_local_device_pointer(window_t, size_t, void**) { detail::needs_device("get_local_device_pointer"); }

}  // namespace ccl::inline v1
