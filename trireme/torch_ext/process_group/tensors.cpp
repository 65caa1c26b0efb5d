#include "trireme/torch_ext/process_group/tensors.h"

#include <c10/core/InferenceMode.h>

#include <optional>

namespace trireme::torch_ext {

bool lies_end_to_end(const at::Tensor& tensor) { return tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg(); }

at::Tensor end_to_end(const at::Tensor& tensor) { return at::empty(tensor.sizes(), tensor.options().memory_format(std::nullopt)); }

namespace {

std::optional<ccl::DataType> known_type(at::ScalarType type) {
  switch (type) {
    case at::kByte: return ccl::DataType::uint8;
    case at::kChar: return ccl::DataType::int8;
    case at::kShort: return ccl::DataType::int16;
    case at::kUInt16: return ccl::DataType::uint16;
    case at::kInt: return ccl::DataType::int32;
    case at::kUInt32: return ccl::DataType::uint32;
    case at::kLong: return ccl::DataType::int64;
    case at::kUInt64: return ccl::DataType::uint64;
    case at::kHalf: return ccl::DataType::float16;
    case at::kBFloat16: return ccl::DataType::bfloat16;
    case at::kFloat: return ccl::DataType::float32;
    case at::kDouble: return ccl::DataType::float64;
    case at::kBool: return ccl::DataType::boolean;
    default: return std::nullopt;
  }
}

// As the caller could: the thread that drives knows nothing of its inference mode, outside of which tensors that were made in it cannot be written to.
template <class Write>
void write_to(const at::Tensor& tensor, Write&& write) {
  c10::InferenceMode mode(tensor.is_inference());
  at::AutoDispatchBelowAutograd no_grad;
  write();
}

size_t numel_of(const at::Tensor& tensor) { return static_cast<size_t>(tensor.numel()); }

}  // namespace

at::Tensor Staging::readable(const at::Tensor& tensor) {
  if (!lies_end_to_end(tensor)) return computed(end_to_end(tensor), [tensor](at::Tensor& ours) { ours.copy_(tensor); });
  held_.push_back(tensor);
  return tensor;
}

at::Tensor Staging::writable(const at::Tensor& tensor) {
  at::Tensor ours = tensor;
  if (!lies_end_to_end(tensor)) {
    ours = end_to_end(tensor);
    copies_.emplace_back(tensor, ours);
  }
  held_.push_back(ours);
  return ours;
}

at::Tensor Staging::updatable(const at::Tensor& tensor) {
  at::Tensor ours = writable(tensor);
  return ours.is_same(tensor) ? ours : computed(ours, [tensor](at::Tensor& copy) { copy.copy_(tensor); });
}

at::Tensor Staging::computed(const at::Tensor& ours, std::function<void(at::Tensor&)> fill) {
  held_.push_back(ours);
  fills_.emplace_back(ours, std::move(fill));
  return ours;
}

void Staging::take_copies() {
  for (auto& [ours, fill] : fills_) write_to(ours, [&] { fill(ours); });
}

void Staging::copy_back() const {
  for (const auto& [theirs, ours] : copies_) write_to(theirs, [&] { theirs.copy_(ours); });
}

Elements elements_to_move(const at::Tensor& tensor) {
  if (auto type = known_type(tensor.scalar_type())) return {*type, numel_of(tensor)};
  return {ccl::DataType::uint8, numel_of(tensor) * tensor.element_size()};
}

Elements elements_to_reduce(const at::Tensor& tensor, const c10d::ReduceOp& op) {
  if (auto type = known_type(tensor.scalar_type())) return {*type, numel_of(tensor)};
  if (tensor.is_complex()) {
    TORCH_CHECK_VALUE(c10d::isComplexViewAsRealAllowed(op), "ccl: complex tensors can be summed and averaged, nothing else: ",
                      tensor.scalar_type(), " has no order and no bitwise operations");
    auto type = known_type(c10::toRealValueType(tensor.scalar_type()));
    if (type) return {*type, 2 * numel_of(tensor)};
  }
  TORCH_CHECK_TYPE(false, "ccl: tensors of ", tensor.scalar_type(), " cannot be reduced; they can be moved (broadcast, gather, send)");
}

ccl::Reduction reduction_of(const c10d::ReduceOp& op) {
  switch (op.op_) {
    case c10d::ReduceOp::SUM:
    case c10d::ReduceOp::PREMUL_SUM: return ccl::Reduction::sum;
    case c10d::ReduceOp::AVG: return ccl::Reduction::avg;
    case c10d::ReduceOp::PRODUCT: return ccl::Reduction::prod;
    case c10d::ReduceOp::MIN: return ccl::Reduction::min;
    case c10d::ReduceOp::MAX: return ccl::Reduction::max;
    case c10d::ReduceOp::BAND: return ccl::Reduction::band;
    case c10d::ReduceOp::BOR: return ccl::Reduction::bor;
    case c10d::ReduceOp::BXOR: return ccl::Reduction::bxor;
    default: TORCH_CHECK_VALUE(false, "ccl: unknown reduction ", static_cast<int>(op.op_));
  }
}

at::Tensor factor_of(const c10d::ReduceOp& op, const at::Tensor& tensor) {
  at::AutoDispatchBelowAutograd no_grad;
  auto* factor = dynamic_cast<c10d::PreMulSumSupplement*>(op.supplement_.get());
  TORCH_CHECK_VALUE(factor != nullptr, "ccl: PREMUL_SUM without a factor; make it with torch.distributed._make_nccl_premul_sum");
  TORCH_CHECK_TYPE(tensor.is_floating_point() || tensor.is_complex(), "ccl: PREMUL_SUM needs floating-point tensors, not ", tensor.scalar_type());
  if (!factor->tensor_factor.defined()) return at::scalar_tensor(factor->double_factor, at::kDouble);
  return factor->tensor_factor.to(tensor.scalar_type(), false, true).reshape({});
}

ccl::Block block_of(const at::Tensor& tensor) { return {tensor.data_ptr(), static_cast<size_t>(tensor.nbytes())}; }

}  // namespace trireme::torch_ext
