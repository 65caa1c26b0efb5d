// Optional settings of operations, communicators and the rest:
//   auto attr = ccl::create_operation_attr<ccl::allreduce_attr>(ccl::attr_val<ccl::operation_attr_id::synchronous>(true));
//   attr.set<ccl::allreduce_attr_id::reduction_fn>(combine);
// set() returns the value that was there before. Attributes are plain values: copies are independent.
#pragma once

#include <cstddef>
#include <type_traits>
#include <utility>

#include "oneapi/ccl/types.hpp"

namespace ccl {
inline namespace v1 {

// Of every operation. priority, to_cache and match_id change nothing here: operations run in the order of submission,
// nothing is worth caching, and match_id is only handed to a reduction_fn. synchronous: the call returns when the operation
// is complete.
enum class operation_attr_id : int {
  version,
  priority,
  to_cache,
  synchronous,
  match_id,
  last_value CCL_DEPRECATED_ENUM_FIELD
};

// An operation's own ids count from op_id_offset.
enum class allgather_attr_id : int { op_id_offset = 5 };
enum class allgatherv_attr_id : int { op_id_offset = 5 };
enum class allreduce_attr_id : int { op_id_offset = 5, reduction_fn = op_id_offset };
enum class alltoall_attr_id : int { op_id_offset = 5 };
enum class alltoallv_attr_id : int { op_id_offset = 5 };
enum class barrier_attr_id : int { op_id_offset = 5 };
enum class broadcast_attr_id : int { op_id_offset = 5 };
// group_id is oneCCL's own bookkeeping of groups, and changes nothing.
enum class pt2pt_attr_id : int { op_id_offset = 5, group_id = op_id_offset };
enum class reduce_attr_id : int { op_id_offset = 5, reduction_fn = op_id_offset };
enum class reduce_scatter_attr_id : int { op_id_offset = 5, reduction_fn = op_id_offset };
enum class scatter_attr_id : int {};

enum class init_attr_id : int { version };
// ip_port: where the store listens, as CCL_KVS_IP_PORT ("10.0.0.1_5000").
enum class kvs_attr_id : int { version, ip_port };
// blocking changes nothing: creating a communicator always returns when it is ready.
enum class comm_attr_id : int { version, blocking };
enum class comm_split_attr_id : int { version, color, group };
enum class datatype_attr_id : int { version, size };
enum class device_attr_id : int { version, cl_backend, native_handle };
enum class context_attr_id : int { version, cl_backend, native_handle };
enum class stream_attr_id : int { version, native_handle };

// Which ranks a split puts together without a color: all of them.
enum class split_group : int { cluster };

namespace detail {

CCL_API const library_version& this_library();

// The type of an attribute's value (type) and what get() returns (return_type). They differ for a function, which comes in a
// holder.
template <class Id, Id id>
struct ccl_api_type_attr_traits {};

template <class Function>
class function_holder {
 public:
  function_holder(Function function = nullptr) : function_(function) {}
  Function get() const { return function_; }

 private:
  Function function_;
};

#define CCL_ATTR(id_type, id, value_type, value_return_type) \
  template <>                                                \
  struct ccl_api_type_attr_traits<id_type, id_type::id> {    \
    using type = value_type;                                 \
    using return_type = value_return_type;                   \
  };

CCL_ATTR(operation_attr_id, version, library_version, library_version)
CCL_ATTR(operation_attr_id, priority, size_t, size_t)
CCL_ATTR(operation_attr_id, to_cache, bool, bool)
CCL_ATTR(operation_attr_id, synchronous, bool, bool)
CCL_ATTR(operation_attr_id, match_id, string_class, string_class)
CCL_ATTR(allreduce_attr_id, reduction_fn, ccl::reduction_fn, function_holder<ccl::reduction_fn>)
CCL_ATTR(reduce_attr_id, reduction_fn, ccl::reduction_fn, function_holder<ccl::reduction_fn>)
CCL_ATTR(reduce_scatter_attr_id, reduction_fn, ccl::reduction_fn, function_holder<ccl::reduction_fn>)
CCL_ATTR(pt2pt_attr_id, group_id, int, int)
CCL_ATTR(init_attr_id, version, library_version, library_version)
CCL_ATTR(kvs_attr_id, version, library_version, library_version)
CCL_ATTR(kvs_attr_id, ip_port, string_class, string_class)
CCL_ATTR(comm_attr_id, version, library_version, library_version)
CCL_ATTR(comm_attr_id, blocking, int, int)
CCL_ATTR(comm_split_attr_id, version, library_version, library_version)
CCL_ATTR(comm_split_attr_id, color, int, int)
CCL_ATTR(comm_split_attr_id, group, split_group, split_group)
CCL_ATTR(datatype_attr_id, version, library_version, library_version)
CCL_ATTR(datatype_attr_id, size, size_t, size_t)
CCL_ATTR(device_attr_id, version, library_version, library_version)
CCL_ATTR(device_attr_id, cl_backend, cl_backend_type, cl_backend_type)
CCL_ATTR(device_attr_id, native_handle, empty_t, empty_t)
CCL_ATTR(context_attr_id, version, library_version, library_version)
CCL_ATTR(context_attr_id, cl_backend, cl_backend_type, cl_backend_type)
CCL_ATTR(context_attr_id, native_handle, empty_t, empty_t)
CCL_ATTR(stream_attr_id, version, library_version, library_version)
CCL_ATTR(stream_attr_id, native_handle, empty_t, empty_t)

#undef CCL_ATTR

template <class Value>
class attr_value {
 public:
  const Value& get() const { return value_; }
  bool is_set() const { return is_set_; }
  Value replace(Value value) {
    std::swap(value_, value);
    is_set_ = true;
    return value;
  }

 private:
  Value value_{};
  bool is_set_ = false;
};

// The version is the library's, and cannot be set.
template <>
class attr_value<library_version> {
 public:
  const library_version& get() const { return this_library(); }
  bool is_set() const { return true; }
};

template <class Id, Id id>
struct attr_field : attr_value<typename ccl_api_type_attr_traits<Id, id>::return_type> {};

// One value for each of `ids`.
template <class Id, Id... ids>
class attr_fields : private attr_field<Id, ids>... {
 public:
  template <Id id, class Value>
  typename ccl_api_type_attr_traits<Id, id>::return_type set(const Value& value) {
    return attr_field<Id, id>::replace(static_cast<typename ccl_api_type_attr_traits<Id, id>::type>(value));
  }

  template <Id id>
  const typename ccl_api_type_attr_traits<Id, id>::return_type& get() const {
    return attr_field<Id, id>::get();
  }

  // Whether it was ever set.
  template <Id id>
  bool is_valid() const noexcept {
    return attr_field<Id, id>::is_set();
  }
};

using operation_fields =
    attr_fields<operation_attr_id, operation_attr_id::version, operation_attr_id::priority, operation_attr_id::to_cache,
                operation_attr_id::synchronous, operation_attr_id::match_id>;

// What every operation has, and what only this one has.
template <class Id, Id... ids>
class operation_attr : public operation_fields, public attr_fields<Id, ids...> {
 public:
  using operation_fields::get;
  using operation_fields::is_valid;
  using operation_fields::set;
  using attr_fields<Id, ids...>::get;
  using attr_fields<Id, ids...>::is_valid;
  using attr_fields<Id, ids...>::set;
};

}  // namespace detail

struct CCL_API ccl_empty_attr {
  // The library's. Not const, because oneCCL's is not.
  static library_version version;

  template <class Attr>
  static Attr create_empty() {
    return Attr();
  }
};

class allgather_attr : public detail::operation_fields {};
class allgatherv_attr : public detail::operation_fields {};
class alltoall_attr : public detail::operation_fields {};
class alltoallv_attr : public detail::operation_fields {};
class barrier_attr : public detail::operation_fields {};
class broadcast_attr : public detail::operation_fields {};
class gather_attr : public detail::operation_fields {};
class scatter_attr : public detail::operation_fields {};
class allreduce_attr : public detail::operation_attr<allreduce_attr_id, allreduce_attr_id::reduction_fn> {};
class reduce_attr : public detail::operation_attr<reduce_attr_id, reduce_attr_id::reduction_fn> {};
class reduce_scatter_attr : public detail::operation_attr<reduce_scatter_attr_id, reduce_scatter_attr_id::reduction_fn> {};
class pt2pt_attr : public detail::operation_attr<pt2pt_attr_id, pt2pt_attr_id::group_id> {};

class init_attr : public detail::attr_fields<init_attr_id, init_attr_id::version> {};

class datatype_attr : public detail::attr_fields<datatype_attr_id, datatype_attr_id::version, datatype_attr_id::size> {};

class kvs_attr : public detail::attr_fields<kvs_attr_id, kvs_attr_id::version, kvs_attr_id::ip_port> {
 public:
  kvs_attr() = default;
  kvs_attr(ccl_empty_attr) {}
};

class comm_attr : public detail::attr_fields<comm_attr_id, comm_attr_id::version, comm_attr_id::blocking> {
 public:
  comm_attr() = default;
  comm_attr(ccl_empty_attr) {}
};

class comm_split_attr : public detail::attr_fields<comm_split_attr_id, comm_split_attr_id::version,
                                                   comm_split_attr_id::color, comm_split_attr_id::group> {
 public:
  comm_split_attr() = default;
  comm_split_attr(ccl_empty_attr) {}
};

// Not const, because oneCCL's are not.
extern CCL_API allgather_attr default_allgather_attr;
extern CCL_API allgatherv_attr default_allgatherv_attr;
extern CCL_API allreduce_attr default_allreduce_attr;
extern CCL_API alltoall_attr default_alltoall_attr;
extern CCL_API alltoallv_attr default_alltoallv_attr;
extern CCL_API barrier_attr default_barrier_attr;
extern CCL_API broadcast_attr default_broadcast_attr;
extern CCL_API gather_attr default_gather_attr;
extern CCL_API pt2pt_attr default_pt2pt_attr;
extern CCL_API reduce_attr default_reduce_attr;
extern CCL_API reduce_scatter_attr default_reduce_scatter_attr;
extern CCL_API scatter_attr default_scatter_attr;
extern CCL_API init_attr default_init_attr;
extern CCL_API kvs_attr default_kvs_attr;
extern CCL_API comm_attr default_comm_attr;
extern CCL_API comm_split_attr default_comm_split_attr;

namespace detail {

// An id with its value, as the create_..._attr functions take them.
template <class Id, Id id, class Value>
class attr_value_triple {
 public:
  using type_t = Id;
  using value_t = Value;
  static constexpr Id idx() { return id; }
  explicit attr_value_triple(Value value) : value_(std::move(value)) {}
  const Value& val() const { return value_; }

 private:
  Value value_;
};

template <class Attr, class... AttrVals>
Attr create_attr(const AttrVals&... vals) {
  Attr attr;
  int in_order[] = {0, (attr.template set<AttrVals::idx()>(vals.val()), 0)...};
  (void)in_order;
  return attr;
}

}  // namespace detail

// One overload for each type of id: C++11 cannot deduce it.
#define CCL_ATTR_VAL(id_type)                                               \
  template <id_type id, class Value>                                        \
  detail::attr_value_triple<id_type, id, Value> attr_val(Value value) {     \
    return detail::attr_value_triple<id_type, id, Value>(std::move(value)); \
  }

CCL_ATTR_VAL(operation_attr_id)
CCL_ATTR_VAL(allreduce_attr_id)
CCL_ATTR_VAL(reduce_attr_id)
CCL_ATTR_VAL(reduce_scatter_attr_id)
CCL_ATTR_VAL(pt2pt_attr_id)
CCL_ATTR_VAL(init_attr_id)
CCL_ATTR_VAL(kvs_attr_id)
CCL_ATTR_VAL(comm_attr_id)
CCL_ATTR_VAL(comm_split_attr_id)
CCL_ATTR_VAL(datatype_attr_id)

#undef CCL_ATTR_VAL

template <class Attr, class... AttrVals>
Attr create_operation_attr(AttrVals&&... vals) {
  return detail::create_attr<Attr>(vals...);
}

template <class... AttrVals>
init_attr create_init_attr(AttrVals&&... vals) {
  return detail::create_attr<init_attr>(vals...);
}

template <class... AttrVals>
kvs_attr create_kvs_attr(AttrVals&&... vals) {
  return detail::create_attr<kvs_attr>(vals...);
}

template <class... AttrVals>
comm_attr create_comm_attr(AttrVals&&... vals) {
  return detail::create_attr<comm_attr>(vals...);
}

template <class... AttrVals>
datatype_attr create_datatype_attr(AttrVals&&... vals) {
  static_assert(sizeof...(vals) > 0, "a datatype needs its size: ccl::attr_val<ccl::datatype_attr_id::size>(bytes)");
  return detail::create_attr<datatype_attr>(vals...);
}

namespace preview {

template <class... AttrVals>
comm_split_attr create_comm_split_attr(AttrVals&&... vals) {
  return detail::create_attr<comm_split_attr>(vals...);
}

}  // namespace preview
}  // namespace v1
}  // namespace ccl
