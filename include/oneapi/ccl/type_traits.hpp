// Which C++ type stands for which ccl::datatype.
#pragma once

#include <tuple>
#include <type_traits>

#include "oneapi/ccl/lp_types.hpp"
#include "oneapi/ccl/types.hpp"

namespace ccl {
inline namespace v1 {

template <class Native, size_t bytes, datatype type, bool class_type = false, bool supported = false>
struct ccl_type_info_export {
  using native_type = Native;
  using ccl_type = std::integral_constant<datatype, type>;
  static constexpr size_t size = bytes;
  static constexpr datatype dtype = type;
  static constexpr bool is_class = class_type;
  static constexpr bool is_supported = supported;
};

// C++11 needs these where a program binds a reference to one of them.
template <class Native, size_t bytes, datatype type, bool class_type, bool supported>
constexpr size_t ccl_type_info_export<Native, bytes, type, class_type, supported>::size;
template <class Native, size_t bytes, datatype type, bool class_type, bool supported>
constexpr datatype ccl_type_info_export<Native, bytes, type, class_type, supported>::dtype;
template <class Native, size_t bytes, datatype type, bool class_type, bool supported>
constexpr bool ccl_type_info_export<Native, bytes, type, class_type, supported>::is_class;
template <class Native, size_t bytes, datatype type, bool class_type, bool supported>
constexpr bool ccl_type_info_export<Native, bytes, type, class_type, supported>::is_supported;

// From a ccl::datatype, and from a C++ type.
template <datatype type>
struct type_info {
  static constexpr bool is_supported = false;
  static constexpr bool is_class = false;
};

template <class Native>
struct native_type_info {
  static constexpr bool is_supported = false;
  static constexpr bool is_class = false;
};

#define CCL_TYPE_TRAITS(type, native)                                                                            \
  template <>                                                                                                    \
  struct type_info<datatype::type> : ccl_type_info_export<native, sizeof(native), datatype::type, false, true> { \
    static constexpr const char* name() { return #type; }                                                        \
  };                                                                                                             \
  template <>                                                                                                    \
  struct native_type_info<native> : type_info<datatype::type> {};

CCL_TYPE_TRAITS(int8, int8_t)
CCL_TYPE_TRAITS(uint8, uint8_t)
CCL_TYPE_TRAITS(int16, int16_t)
CCL_TYPE_TRAITS(uint16, uint16_t)
CCL_TYPE_TRAITS(int32, int32_t)
CCL_TYPE_TRAITS(uint32, uint32_t)
CCL_TYPE_TRAITS(int64, int64_t)
CCL_TYPE_TRAITS(uint64, uint64_t)
CCL_TYPE_TRAITS(float16, ccl::float16)
CCL_TYPE_TRAITS(float32, float)
CCL_TYPE_TRAITS(float64, double)
CCL_TYPE_TRAITS(bfloat16, ccl::bfloat16)

#undef CCL_TYPE_TRAITS

template <class T>
constexpr bool is_supported() {
  return native_type_info<typename std::remove_pointer<T>::type>::is_supported;
}

// Buffers that are objects (SYCL's) rather than pointers: the host has none.
template <class T>
constexpr bool is_class() {
  return native_type_info<typename std::remove_pointer<T>::type>::is_class;
}

template <class T>
constexpr bool is_native_type_supported() {
  return is_supported<T>() && !is_class<T>();
}

template <class T>
constexpr bool is_class_supported() {
  return is_supported<T>() && is_class<T>();
}

}  // namespace v1
}  // namespace ccl
