#include "trireme/ccl/api/reductions.h"

#include <array>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <type_traits>
#include <unordered_map>
#include <utility>

#include "oneapi/ccl/reductions.hpp"
#include "trireme/base/error.h"
#include "trireme/base/float16.h"
#include "trireme/ccl/api/datatypes.h"
#include "trireme/ccl/api/errors.h"
#include "trireme/ccl/api/handles.h"

namespace ccl::inline v1 {
namespace detail {
namespace {

using core::OpKind;

// A sum of which this rank's elements are first multiplied by a scalar.
struct pre_mul_sum {
  datatype dtype;
  std::array<std::byte, sizeof(uint64_t)> scalar;
};

// Those that the program has made. Threads may share it.
class registry {
 public:
  reduction add(const pre_mul_sum& sum) {
    std::lock_guard lock(mutex_);
    const reduction rtype = static_cast<reduction>(next_++);
    sums_.emplace(rtype, sum);
    return rtype;
  }

  bool remove(reduction rtype) {
    std::lock_guard lock(mutex_);
    return sums_.erase(rtype) == 1;
  }

  std::optional<pre_mul_sum> find(reduction rtype) const {
    std::lock_guard lock(mutex_);
    const auto found = sums_.find(rtype);
    if (found == sums_.end()) return std::nullopt;
    return found->second;
  }

 private:
  mutable std::mutex mutex_;
  int next_ = static_cast<int>(reduction::predefined_ops);
  std::unordered_map<reduction, pre_mul_sum> sums_;
};

// Never destroyed: a program's static objects may still use it.
registry& created() {
  static registry& reductions = *new registry;
  return reductions;
}

// Neither buffer need be aligned.
template <class T, class Multiply>
void scale(const void* in, void* out, size_t count, const void* scalar, Multiply multiply) {
  T factor;
  std::memcpy(&factor, scalar, sizeof(T));
  const auto* from = static_cast<const std::byte*>(in);
  auto* to = static_cast<std::byte*>(out);
  for (size_t i = 0; i < count; ++i) {
    T element;
    std::memcpy(&element, from + i * sizeof(T), sizeof(T));
    element = multiply(element, factor);
    std::memcpy(to + i * sizeof(T), &element, sizeof(T));
  }
}

// Integers wrap around: a signed product has the bits of the unsigned one, so each width needs one function.
template <class T>
void scale_numbers(const void* in, void* out, size_t count, const void* scalar) {
  scale<T>(in, out, count, scalar, [](T a, T b) { return static_cast<T>(a * b); });
}

void scale(datatype dtype, const void* in, void* out, size_t count, const void* scalar) {
  switch (dtype) {
    case datatype::int8:
    case datatype::uint8: return scale_numbers<uint8_t>(in, out, count, scalar);
    case datatype::int16:
    case datatype::uint16:
      return scale<uint16_t>(in, out, count, scalar, [](uint32_t a, uint32_t b) { return static_cast<uint16_t>(a * b); });
    case datatype::int32:
    case datatype::uint32: return scale_numbers<uint32_t>(in, out, count, scalar);
    case datatype::int64:
    case datatype::uint64: return scale_numbers<uint64_t>(in, out, count, scalar);
    case datatype::float32: return scale_numbers<float>(in, out, count, scalar);
    case datatype::float64: return scale_numbers<double>(in, out, count, scalar);
    case datatype::float16:
      return scale<trireme::float16>(in, out, count, scalar, [](trireme::float16 a, trireme::float16 b) {
        return trireme::to_float16(to_float(a) * to_float(b));
      });
    case datatype::bfloat16:
      return scale<trireme::bfloat16>(in, out, count, scalar, [](trireme::bfloat16 a, trireme::bfloat16 b) {
        return trireme::to_bfloat16(to_float(a) * to_float(b));
      });
  }
}

// This rank's contribution in elements: all parts of a reduce_scatter, which are equal in this API.
size_t contributed(const core::Operation& operation, int size) {
  if (operation.kind != OpKind::reduce_scatter) return operation.count;
  return multiply("recv_count", operation.recv_counts[0], size);
}

void plan_pre_mul_sum(plan& plan, const pre_mul_sum& sum, datatype dtype, int size) {
  if (dtype != sum.dtype) {
    throw trireme::InvalidArgument(trireme::str("dtype = ", static_cast<int>(dtype),
                                                " is not that of the reduction's scalar, ", static_cast<int>(sum.dtype)));
  }
  core::Operation& operation = plan.operation;
  const size_t count = contributed(operation, size);
  if (operation.send_buffer != nullptr) {
    plan.scratch = std::make_shared_for_overwrite<std::byte[]>(multiply("count", count, bytes_of(dtype)));
    // Not before: what it waits for may write the buffer.
    operation.on_start = [dtype, from = operation.send_buffer, scaled = plan.scratch, count, scalar = sum.scalar] {
      scale(dtype, from, scaled.get(), count, scalar.data());
    };
    operation.send_buffer = plan.scratch.get();
  }
  operation.reduction = core::Reduction::sum;
}

std::vector<core::Block> end_to_end(void* data, size_t bytes, int size) {
  std::vector<core::Block> blocks(size);
  for (int r = 0; r < size; ++r) blocks[r] = {data == nullptr ? nullptr : static_cast<std::byte*>(data) + r * bytes, bytes};
  return blocks;
}

// result = contributions[0] combined with the others in rank order.
void combine(const reduction_request& request, const std::byte* contributions, size_t count, size_t bytes, int size,
             void* result) {
  if (count == 0) return;
  const fn_context context = {request.match_id.c_str(), 0};
  std::memcpy(result, contributions, bytes);
  for (int r = 1; r < size; ++r) {
    size_t out_count = count;
    request.function(contributions + r * bytes, count, result, &out_count, request.dtype, &context);
  }
}

// A program's function must see whole elements of its type, at a known offset. So the ranks exchange their contributions as
// bytes, and each combines what it needs when they are there: the memory of `size` results.
void plan_custom(plan& plan, const reduction_request& request, int rank, int size) {
  core::Operation& operation = plan.operation;
  const OpKind kind = std::exchange(operation.kind, OpKind::allgather);
  const size_t count = kind == OpKind::reduce_scatter ? operation.recv_counts[rank] : operation.count;
  const size_t bytes = multiply("count", count, bytes_of(request.dtype));
  const bool gets_result = kind != OpKind::reduce || rank == operation.root;
  if (gets_result) plan.scratch = std::make_shared_for_overwrite<std::byte[]>(multiply("count", bytes, size));

  operation.stated = {kind, elements_of(request.dtype, 0).type, core::Reduction::custom, count};
  operation.type = core::DataType::uint8;
  operation.count = bytes;
  operation.recv_counts.clear();
  void* const result = std::exchange(operation.recv_buffer, nullptr);
  if (gets_result && result == nullptr && bytes != 0) throw trireme::InvalidArgument("recv_buf is null");
  if (gets_result) operation.recv_blocks = end_to_end(plan.scratch.get(), bytes, size);
  if (kind == OpKind::reduce) operation.kind = OpKind::gather;
  if (kind == OpKind::reduce_scatter) {
    operation.kind = OpKind::alltoall;
    operation.send_blocks = end_to_end(const_cast<void*>(std::exchange(operation.send_buffer, nullptr)), bytes, size);
    operation.count = 0;
  }
  if (!gets_result) return;
  // Before the collectives behind it start, which may send the result. The program's function may throw; that is for who waits.
  const auto thrown = std::make_shared<std::exception_ptr>();
  operation.on_finished = [request, contributions = plan.scratch, count, bytes, size, result, thrown](const std::exception_ptr& error) {
    if (error) return;
    try {
      combine(request, contributions.get(), count, bytes, size, result);
    } catch (...) {
      *thrown = std::current_exception();
    }
  };
  plan.finish = [thrown] {
    if (*thrown) std::rethrow_exception(*thrown);
  };
}

core::Reduction predefined(reduction rtype) {
  switch (rtype) {
    case reduction::sum: return core::Reduction::sum;
    case reduction::prod: return core::Reduction::prod;
    case reduction::min: return core::Reduction::min;
    case reduction::max: return core::Reduction::max;
    case reduction::avg: return core::Reduction::avg;
    default: throw trireme::InvalidArgument(trireme::str("rtype = ", static_cast<int>(rtype), " is not a reduction"));
  }
}

}  // namespace

void plan_reduction(plan& plan, const reduction_request& request, int rank, int size) {
  if (request.rtype == reduction::custom) {
    if (request.function == nullptr)
      throw trireme::InvalidArgument("rtype is custom, but the attribute reduction_fn is not set");
    return plan_custom(plan, request, rank, size);
  }
  if (is_registered(request.dtype)) {
    throw trireme::InvalidArgument("dtype is the program's own: only reduction::custom with a reduction_fn can reduce it");
  }
  plan.operation.type = elements_of(request.dtype, 0).type;
  const bool made_by_program = static_cast<int>(request.rtype) >= static_cast<int>(reduction::predefined_ops);
  if (const auto sum = made_by_program ? created().find(request.rtype) : std::nullopt) return plan_pre_mul_sum(plan, *sum, request.dtype, size);
  plan.operation.reduction = predefined(request.rtype);
}

}  // namespace detail

void reduction_create_pre_mul_sum(reduction* rtype, void* scalar, datatype dtype, scalar_residence_type residence,
                                  const communicator& comm) {
  detail::translating("reduction_create_pre_mul_sum", [&] {
    detail::access::state(comm).get();
    if (rtype == nullptr) throw trireme::InvalidArgument("rtype is null");
    if (scalar == nullptr) throw trireme::InvalidArgument("scalar is null");
    if (residence != scalar_residence_type::scalar_host_immediate) detail::needs_device("reduction_create_pre_mul_sum");
    if (detail::is_registered(dtype)) throw trireme::InvalidArgument("dtype is the program's own, and has no product");
    detail::pre_mul_sum sum{dtype, {}};
    std::memcpy(sum.scalar.data(), scalar, detail::bytes_of(dtype));
    *rtype = detail::created().add(sum);
  });
}

void reduction_destroy(reduction rtype, const communicator& comm) {
  detail::translating("reduction_destroy", [&] {
    detail::access::state(comm).get();
    if (!detail::created().remove(rtype)) {
      throw trireme::InvalidArgument(
          trireme::str("rtype = ", static_cast<int>(rtype), " was not made by reduction_create_pre_mul_sum"));
    }
  });
}

}  // namespace ccl::inline v1
