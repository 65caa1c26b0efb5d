// Devices, contexts and streams. On host memory they carry nothing, but the API's signatures ask for them. All are plain
// values.
#pragma once

#include <type_traits>

#include "oneapi/ccl/attributes.hpp"
#include "oneapi/ccl/exception.hpp"

namespace ccl {
inline namespace v1 {

class device : private detail::attr_fields<device_attr_id, device_attr_id::version, device_attr_id::cl_backend,
                                           device_attr_id::native_handle> {
 public:
  using native_t = empty_t;
  using attr_fields::get;

  native_t& get_native() { return native_; }
  const native_t& get_native() const { return native_; }
  // There is one host.
  bool operator==(const device&) const noexcept { return true; }
  bool operator!=(const device&) const noexcept { return false; }
  bool operator<(const device&) const noexcept { return false; }

 private:
  native_t native_;
};

class context : private detail::attr_fields<context_attr_id, context_attr_id::version, context_attr_id::cl_backend,
                                            context_attr_id::native_handle> {
 public:
  using native_t = empty_t;
  using attr_fields::get;

  native_t& get_native() { return native_; }
  const native_t& get_native() const { return native_; }
  bool operator==(const context&) const noexcept { return true; }
  bool operator!=(const context&) const noexcept { return false; }
  bool operator<(const context&) const noexcept { return false; }

 private:
  native_t native_;
};

class stream : private detail::attr_fields<stream_attr_id, stream_attr_id::version, stream_attr_id::native_handle> {
 public:
  using native_t = empty_t;
  using attr_fields::get;

  native_t& get_native() { return native_; }
  const native_t& get_native() const { return native_; }

 private:
  native_t native_;
};

extern CCL_API stream default_stream;

template <class Native>
constexpr bool is_device_supported() {
  return std::is_same<typename std::decay<Native>::type, empty_t>::value;
}

template <class Native>
constexpr bool is_context_supported() {
  return is_device_supported<Native>();
}

template <class Native>
constexpr bool is_stream_supported() {
  return is_device_supported<Native>();
}

template <class Native>
constexpr bool is_event_supported() {
  return false;
}

inline device create_device() { return device(); }
inline context create_context() { return context(); }
inline stream create_stream() { return stream(); }

// From a native object: compiles for any, so that a program can hold a path for devices beside the one for the host, and
// throws unsupported for every one but empty_t.
template <class Native>
device create_device(Native&&) {
  if (!is_device_supported<Native>()) detail::needs_device("create_device");
  return device();
}

template <class Native>
context create_context(Native&&) {
  if (!is_context_supported<Native>()) detail::needs_device("create_context");
  return context();
}

template <class Native>
stream create_stream(Native&&) {
  if (!is_stream_supported<Native>()) detail::needs_device("create_stream");
  return stream();
}

template <class Device>
using rank_device_pair_t = pair_class<size_t, typename std::decay<Device>::type>;

// A rank with its device, for create_communicators.
template <class Device>
rank_device_pair_t<Device> attr_val(int rank, Device&& local_device) {
  return rank_device_pair_t<Device>(rank, std::forward<Device>(local_device));
}

}  // namespace v1
}  // namespace ccl
