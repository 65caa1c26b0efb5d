// Element types, reductions, and the functions and versions that the API talks about.
#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <iostream>
#include <limits>
#include <tuple>
#include <type_traits>

#include "oneapi/ccl/aliases.hpp"
#include "oneapi/ccl/config.h"
#include "oneapi/ccl/exception.hpp"

namespace ccl {
inline namespace v1 {

enum class reduction : int {
  sum = 0,
  prod = 1,
  min = 2,
  max = 3,
  avg = 4,
  custom = 5,
  // Those made by reduction_create_pre_mul_sum count from here.
  predefined_ops = 6,
  max_ops = std::numeric_limits<int>::max() - 6,
  none = std::numeric_limits<int>::max()
};

// Where a reduction's scalar lives.
enum class scalar_residence_type : int { scalar_device = 0, scalar_host_immediate = 1 };

// Those made by register_datatype count on from the last.
enum class datatype : int {
  int8 = 0,
  uint8,
  int16,
  uint16,
  int32,
  uint32,
  int64,
  uint64,
  float16,
  float32,
  float64,
  bfloat16,
  last_predefined CCL_DEPRECATED_ENUM_FIELD = bfloat16
};

enum class cl_backend_type : int { empty_backend = 0, dpcpp_sycl_l0 = 3 };

struct library_version {
  unsigned int major;
  unsigned int minor;
  unsigned int update;
  const char* product_status;
  const char* build_date;
  const char* full;
  string_class cl_backend_name;
};

// What a reduction_fn learns about the operation it works for.
struct fn_context {
  const char* match_id;
  // Of the elements at hand, in bytes from the start of the result.
  const size_t offset;
};

// inout[i] = combine(in[i], inout[i]) for in_count elements of dtype; *out_count is in_count. Called in rank order.
typedef void (*reduction_fn)(const void* in, size_t in_count, void* inout, size_t* out_count, datatype dtype,
                             const fn_context* context);

// In place of a native device, context or queue: the host has none.
struct empty_t {};

// How oneCCL numbers devices: by driver, device and part of it.
using index_type = uint32_t;
static constexpr index_type unused_index_value = std::numeric_limits<index_type>::max();
using device_index_type = std::tuple<index_type, index_type, index_type>;

}  // namespace v1
}  // namespace ccl
