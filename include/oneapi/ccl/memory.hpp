// Memory for communication.
#pragma once

#include <memory>

#include "oneapi/ccl/communicator.hpp"
#include "oneapi/ccl/config.h"
#include "oneapi/ccl/device.hpp"

#define CCL_WIN_DEFAULT 0
#define CCL_WIN_COLL_SYMMETRIC 1

namespace ccl {
inline namespace v1 {

// Memory that the ranks of this host can map: operations on it need no copy. Usable with every communicator of the process.
CCL_API void mem_alloc(const stream& op_stream, size_t size, void** ptr);
CCL_API void mem_free(const stream& op_stream, void* ptr);

// Tells the library of a buffer that will be used often. Host memory needs no registration: the handle only stands for the
// buffer.
CCL_API void comm_register(const communicator& comm, void* buffer, size_t size, void** handle);
CCL_API void comm_deregister(const communicator& comm, void* handle);

// A registered buffer as an object. Move only.
class CCL_API window {
 public:
  window(window&& other) noexcept;
  window& operator=(window&& other) noexcept;
  ~window();

 private:
  friend struct detail::access;
  explicit window(void* buffer);
  void* buffer_;
};

CCL_API window comm_window_register(const communicator& comm, void* buffer, size_t size, int win_flags);
CCL_API void comm_window_deregister(const communicator& comm, window& win);

// A window as code on a device uses it, and the memory of its peers. All of them throw unsupported.
struct window_data;
typedef window_data* window_t;

CCL_API window_t comm_window_register_v2(const communicator& comm, void* buffer, size_t size, int win_flags);
CCL_API void comm_window_deregister(const communicator& comm, window_t& win);
CCL_API void get_peer_device_pointer(window_t win, size_t offset, int peer, void** out_ptr);
CCL_API void get_lsa_device_pointer(window_t win, size_t offset, int lsa_peer, void** out_ptr);
CCL_API void get_local_device_pointer(window_t win, size_t offset, void** out_ptr);

}  // namespace v1
}  // namespace ccl
