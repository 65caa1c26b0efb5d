#include "trireme/ccl/api/datatypes.h"

#include <mutex>
#include <shared_mutex>
#include <unordered_map>

#include "oneapi/ccl/library.hpp"
#include "trireme/base/error.h"
#include "trireme/ccl/api/errors.h"

namespace ccl::inline v1 {
namespace detail {
namespace {

using core_type = trireme::ccl::DataType;

// In the order of the enumeration.
constexpr core_type kPredefined[] = {core_type::int8,    core_type::uint8,   core_type::int16,   core_type::uint16,
                                     core_type::int32,   core_type::uint32,  core_type::int64,   core_type::uint64,
                                     core_type::float16, core_type::float32, core_type::float64, core_type::bfloat16};
constexpr int kPredefinedCount = std::size(kPredefined);

bool is_predefined(datatype dtype) {
  const int index = static_cast<int>(dtype);
  return index >= 0 && index < kPredefinedCount;
}

// Sizes of the registered types. Threads may share it.
class registry {
 public:
  datatype add(size_t bytes) {
    std::lock_guard lock(mutex_);
    const datatype dtype = static_cast<datatype>(next_++);
    bytes_.emplace(dtype, bytes);
    return dtype;
  }

  bool remove(datatype dtype) {
    std::lock_guard lock(mutex_);
    return bytes_.erase(dtype) == 1;
  }

  // 0 for one that is not there.
  size_t bytes(datatype dtype) const {
    std::shared_lock lock(mutex_);
    const auto found = bytes_.find(dtype);
    return found == bytes_.end() ? 0 : found->second;
  }

 private:
  mutable std::shared_mutex mutex_;
  int next_ = kPredefinedCount;
  std::unordered_map<datatype, size_t> bytes_;
};

// Never destroyed: a program's static objects may still use it.
registry& registered() {
  static registry& types = *new registry;
  return types;
}

}  // namespace

bool is_registered(datatype dtype) { return !is_predefined(dtype) && registered().bytes(dtype) != 0; }

size_t bytes_of(datatype dtype) {
  if (is_predefined(dtype)) return trireme::ccl::size_of(kPredefined[static_cast<int>(dtype)]);
  const size_t bytes = registered().bytes(dtype);
  if (bytes == 0) {
    throw trireme::InvalidArgument(
        trireme::str("dtype = ", static_cast<int>(dtype), " is neither one of ccl::datatype nor registered"));
  }
  return bytes;
}

elements elements_of(datatype dtype, size_t count) {
  if (is_predefined(dtype)) return {kPredefined[static_cast<int>(dtype)], count};
  return {core_type::uint8, multiply("count", count, bytes_of(dtype))};
}

size_t multiply(const char* argument, size_t a, size_t b) {
  size_t product;
  if (__builtin_mul_overflow(a, b, &product)) {
    throw trireme::InvalidArgument(
        trireme::str(argument, " = ", a, " overflows: no memory is that large (was it negative?)"));
  }
  return product;
}

}  // namespace detail

datatype register_datatype(const datatype_attr& attr) {
  return detail::translating("register_datatype", [&] {
    const size_t bytes = attr.get<datatype_attr_id::size>();
    if (bytes == 0) throw trireme::InvalidArgument("datatype_attr_id::size is 0");
    return detail::registered().add(bytes);
  });
}

void deregister_datatype(datatype dtype) {
  detail::translating("deregister_datatype", [&] {
    if (!detail::registered().remove(dtype)) {
      throw trireme::InvalidArgument(trireme::str("dtype = ", static_cast<int>(dtype), " was not registered"));
    }
  });
}

size_t get_datatype_size(datatype dtype) {
  return detail::translating("get_datatype_size", [&] { return detail::bytes_of(dtype); });
}

}  // namespace ccl::inline v1
