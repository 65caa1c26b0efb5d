// Each c10d method as an operation of the library: checks, then where the data lie. Nothing here waits, but where it says so.
#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/torch_ext/process_group/errors.h"
#include "trireme/torch_ext/process_group/submission.h"

namespace trireme::torch_ext {
namespace {

using c10d::OpType;
using Tensors = std::vector<at::Tensor>;
using TensorLists = std::vector<Tensors>;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;

// ---- checks. Messages begin with the method's name.

void check_memory(const char* method, const at::Tensor& tensor) {
  TORCH_CHECK_VALUE(tensor.defined(), "ccl: ", method, ": a tensor is undefined");
  TORCH_CHECK_VALUE(tensor.device().is_cpu(), "ccl: ", method, ": a tensor lies on ", tensor.device(), "; this backend works on CPU tensors");
  TORCH_CHECK_VALUE(tensor.layout() == at::kStrided, "ccl: ", method, ": a tensor's layout is ", tensor.layout(),
                    "; only dense tensors can be used here");
}

const at::Tensor& only(const char* method, const Tensors& tensors) {
  TORCH_CHECK_VALUE(!tensors.empty(), "ccl: ", method, ": requires non-empty tensor list");
  TORCH_CHECK_VALUE(tensors.size() == 1, "ccl: ", method, ": requires a single-element tensor list, got ", tensors.size(), " tensors");
  check_memory(method, tensors[0]);
  return tensors[0];
}

void check_root(const char* method, int64_t root, int size) {
  TORCH_CHECK_VALUE(root >= 0 && root < size, "ccl: ", method, ": unexpected rank ", root, " as root: ranks go from 0 to ", size - 1);
}

void check_type(const char* method, const at::Tensor& tensor, const at::Tensor& like) {
  check_memory(method, tensor);
  TORCH_CHECK_VALUE(tensor.scalar_type() == like.scalar_type(), "ccl: ", method, ": Tensors are not equal in data type: ", tensor.scalar_type(),
                    " and ", like.scalar_type());
}

// One tensor per rank, all of one type.
const Tensors& per_rank(const char* method, const TensorLists& lists, const at::Tensor& like, int size) {
  TORCH_CHECK_VALUE(lists.size() == 1, "ccl: ", method, ": requires a single-element list with one list of tensors in it, got ", lists.size());
  TORCH_CHECK_VALUE(lists[0].size() == static_cast<size_t>(size), "ccl: ", method, ": Incorrect list size ", lists[0].size(),
                    ": one tensor for each of ", size, " ranks is needed");
  for (const at::Tensor& tensor : lists[0]) check_type(method, tensor, like);
  return lists[0];
}

// Typed reductions fail before anything is sent; this says so for dtypes in the words of torch.
ccl::Operation& add_reduction(ccl::Operation& op, const at::Tensor& tensor, const c10d::ReduceOp& reduce) {
  const Elements elements = elements_to_reduce(tensor, reduce);
  op.type = elements.type;
  op.count = elements.count;
  op.reduction = reduction_of(reduce);
  return op;
}

ccl::Operation& add_elements(ccl::Operation& op, const at::Tensor& tensor) {
  const Elements elements = elements_to_move(tensor);
  op.type = elements.type;
  op.count = elements.count;
  return op;
}

// PREMUL_SUM reduces a product that lies elsewhere.
at::Tensor source_of(const at::Tensor& tensor, const c10d::ReduceOp& reduce, Staging& staging) {
  if (reduce.op_ != c10d::ReduceOp::PREMUL_SUM) return staging.readable(tensor);
  return staging.computed(end_to_end(tensor),
                          [tensor, factor = factor_of(reduce, tensor)](at::Tensor& product) { at::mul_out(product, tensor, factor); });
}

// Equal pieces of a tensor, one per rank.
std::vector<ccl::Block> equal_blocks(const at::Tensor& tensor, int size) {
  std::vector<ccl::Block> blocks;
  const size_t bytes = static_cast<size_t>(tensor.nbytes()) / static_cast<size_t>(size);
  for (int rank = 0; rank < size; ++rank) blocks.push_back({static_cast<std::byte*>(tensor.data_ptr()) + static_cast<size_t>(rank) * bytes, bytes});
  return blocks;
}

// alltoall_base: rows of the first dimension, equally many per rank where there are no splits.
std::vector<ccl::Block> split_blocks(const char* what, const at::Tensor& tensor, const std::vector<int64_t>& splits, int size) {
  const int64_t rows = tensor.dim() == 0 ? tensor.numel() : tensor.size(0);
  if (splits.empty()) {
    TORCH_CHECK_VALUE(rows % size == 0, "ccl: alltoall_base: Tensor's dim 0 does not divide equally across group size: ", what, " has ", rows, " rows for ",
                      size, " ranks");
    return equal_blocks(tensor, size);
  }
  TORCH_CHECK_VALUE(splits.size() == static_cast<size_t>(size), "ccl: alltoall_base: Number of tensor splits not equal to group size: ", what, " has ",
                    splits.size(), " for ", size, " ranks");
  std::vector<ccl::Block> blocks;
  const size_t row_bytes = rows == 0 ? 0 : static_cast<size_t>(tensor.nbytes()) / static_cast<size_t>(rows);
  int64_t at = 0;
  for (int64_t split : splits) {
    TORCH_CHECK_VALUE(split >= 0 && split <= rows - at, "ccl: alltoall_base: Split sizes doesn't match total dim 0 size: ", what, " has ", rows, " rows");
    blocks.push_back({static_cast<std::byte*>(tensor.data_ptr()) + static_cast<size_t>(at) * row_bytes, static_cast<size_t>(split) * row_bytes});
    at += split;
  }
  TORCH_CHECK_VALUE(at == rows, "ccl: alltoall_base: Split sizes doesn't match total dim 0 size: ", what, " has ", rows, " rows, the splits ", at);
  return blocks;
}

bool are_adjacent(const Tensors& tensors) {
  const auto* next = static_cast<const std::byte*>(tensors[0].data_ptr());
  for (const at::Tensor& tensor : tensors) {
    if (!lies_end_to_end(tensor) || tensor.data_ptr() != next || !tensor.is_alias_of(tensors[0])) return false;
    next += tensor.nbytes();
  }
  return true;
}

// The inputs of a reduce_scatter end to end, times the factor of PREMUL_SUM. Often they are pieces of one tensor already: then the first of them.
at::Tensor joined(const Tensors& tensors, const c10d::ReduceOp& reduce, Staging& staging) {
  const bool multiplied = reduce.op_ == c10d::ReduceOp::PREMUL_SUM;
  if (!multiplied && are_adjacent(tensors)) {
    for (const at::Tensor& tensor : tensors) staging.hold(tensor);
    return tensors[0];
  }
  int64_t count = 0;
  for (const at::Tensor& tensor : tensors) count += tensor.numel();
  const at::Tensor factor = multiplied ? factor_of(reduce, tensors[0]) : at::Tensor();
  return staging.computed(at::empty({count}, tensors[0].options()), [tensors, factor](at::Tensor& all) {
    Tensors flat;
    for (const at::Tensor& tensor : tensors) flat.push_back(tensor.reshape({-1}).resolve_conj().resolve_neg());
    at::cat_out(all, flat);
    if (factor.defined()) all.mul_(factor);
  });
}

void check_equal_lists(const char* method, const Tensors& outputs, const Tensors& inputs) {
  TORCH_CHECK_VALUE(!inputs.empty(), "ccl: ", method, ": requires non-empty tensor list");
  TORCH_CHECK_VALUE(outputs.size() == inputs.size(), "ccl: ", method, ": ", inputs.size(), " inputs, but ", outputs.size(), " outputs");
}

}  // namespace

// ---- reductions

WorkPtr ProcessGroupCCL::allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) {
  if (tensors.size() == 1 && tensors[0].defined() && tensors[0].layout() == at::kSparse) return allreduce_sparse(tensors, opts);
  const at::Tensor& tensor = only("allreduce", tensors);
  Submission call{OpType::ALLREDUCE, "ccl:all_reduce", opts.timeout, opts.asyncOp};
  ccl::Operation& op = add_reduction(call.add(ccl::OpKind::allreduce), tensor, opts.reduceOp);
  const at::Tensor result = call.staging.updatable(tensor);
  op.recv_buffer = result.data_ptr();
  op.send_buffer = source_of(result, opts.reduceOp, call.staging).data_ptr();
  call.inputs = call.outputs = tensors;
  return submit(std::move(call));
}

WorkPtr ProcessGroupCCL::allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& opts) {
  TORCH_CHECK_VALUE(!tensors.empty(), "ccl: allreduce_coalesced: requires non-empty tensor list");
  Submission call{OpType::ALLREDUCE_COALESCED, "ccl:all_reduce", opts.timeout, opts.asyncOp};
  for (const at::Tensor& tensor : tensors) {
    check_type("allreduce_coalesced", tensor, tensors[0]);
    ccl::Operation& op = add_reduction(call.add(ccl::OpKind::allreduce), tensor, opts.reduceOp);
    const at::Tensor result = call.staging.updatable(tensor);
    op.recv_buffer = result.data_ptr();
    op.send_buffer = source_of(result, opts.reduceOp, call.staging).data_ptr();
  }
  call.inputs = call.outputs = tensors;
  auto work = submit(std::move(call));
  work->wait(kNoTimeout);
  return work;
}

WorkPtr ProcessGroupCCL::reduce(Tensors& tensors, const c10d::ReduceOptions& opts) {
  const at::Tensor& tensor = only("reduce", tensors);
  check_root("reduce", opts.rootRank, size_);
  Submission call{OpType::REDUCE, "ccl:reduce", opts.timeout, opts.asyncOp};
  ccl::Operation& op = add_reduction(call.add(ccl::OpKind::reduce), tensor, opts.reduceOp);
  op.root = static_cast<int>(opts.rootRank);
  const at::Tensor result = op.root == rank_ ? call.staging.updatable(tensor) : call.staging.readable(tensor);
  op.recv_buffer = op.root == rank_ ? result.data_ptr() : nullptr;
  op.send_buffer = source_of(result, opts.reduceOp, call.staging).data_ptr();
  call.inputs = call.outputs = tensors;
  return submit(std::move(call));
}

WorkPtr ProcessGroupCCL::reduce_scatter(Tensors& outputs, TensorLists& inputs, const c10d::ReduceScatterOptions& opts) {
  const at::Tensor& output = only("reduce_scatter", outputs);
  const Tensors& parts = per_rank("reduce_scatter", inputs, output, size_);
  TORCH_CHECK_VALUE(parts[static_cast<size_t>(rank_)].numel() == output.numel(), "ccl: reduce_scatter: Tensors are not equal in size: the output has ",
                    output.numel(), " elements, this rank's input ", parts[static_cast<size_t>(rank_)].numel());
  Submission call{OpType::REDUCE_SCATTER, "ccl:reduce_scatter", opts.timeout, opts.asyncOp};
  ccl::Operation& op = add_reduction(call.add(ccl::OpKind::reduce_scatter), output, opts.reduceOp);
  for (const at::Tensor& part : parts) op.recv_counts.push_back(elements_to_reduce(part, opts.reduceOp).count);
  op.send_buffer = joined(parts, opts.reduceOp, call.staging).data_ptr();
  op.recv_buffer = call.staging.writable(output).data_ptr();
  call.inputs = parts;
  call.outputs = outputs;
  return submit(std::move(call));
}

WorkPtr ProcessGroupCCL::_reduce_scatter_base(at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& opts) {
  Tensors outputs{output}, inputs{input};
  Submission call{OpType::_REDUCE_SCATTER_BASE, "ccl:_reduce_scatter_base", opts.timeout, opts.asyncOp};
  check_memory("_reduce_scatter_base", output);
  check_type("_reduce_scatter_base", input, output);
  TORCH_CHECK_VALUE(input.numel() == output.numel() * size_, "ccl: _reduce_scatter_base: input tensor must be the same size as output size times world size: ",
                    input.numel(), " is not ", output.numel(), " x ", size_);
  ccl::Operation& op = add_reduction(call.add(ccl::OpKind::reduce_scatter), output, opts.reduceOp);
  op.recv_counts.assign(static_cast<size_t>(size_), op.count);
  op.send_buffer = source_of(input, opts.reduceOp, call.staging).data_ptr();
  op.recv_buffer = call.staging.writable(output).data_ptr();
  call.inputs = inputs;
  call.outputs = outputs;
  return submit(std::move(call));
}

WorkPtr ProcessGroupCCL::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs, const c10d::ReduceScatterOptions& opts) {
  check_equal_lists("reduce_scatter_tensor_coalesced", outputs, inputs);
  std::vector<WorkPtr> works;
  for (size_t i = 0; i < inputs.size(); ++i) works.push_back(_reduce_scatter_base(outputs[i], inputs[i], opts));
  return c10::make_intrusive<CoalescedWork>(rank_, std::move(works));
}

// Waits: how many entries each rank has must be known before they can be fetched. Sums the entries of all ranks; a tensor that is hybrid
// (rows of an embedding) stays so.
WorkPtr ProcessGroupCCL::allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& opts) {
  TORCH_CHECK_VALUE(tensors.size() == 1, "ccl: allreduce_sparse: requires a single-element tensor list, got ", tensors.size(), " tensors");
  at::Tensor& tensor = tensors[0];
  TORCH_CHECK_VALUE(tensor.layout() == at::kSparse && tensor.device().is_cpu(), "ccl: allreduce_sparse: needs a sparse COO tensor on the CPU, not ",
                    tensor.layout(), " on ", tensor.device());
  TORCH_CHECK_VALUE(opts.reduceOp == c10d::ReduceOp::SUM, "ccl: allreduce_sparse: only SUM has a meaning for sparse tensors");
  at::AutoDispatchBelowAutograd no_grad;
  const at::Tensor mine = tensor.coalesce();
  const c10d::AllgatherOptions gather_opts{opts.timeout, false};
  auto gather = [&](const at::Tensor& part, const std::vector<int64_t>& counts, int64_t dim) {
    Tensors input{part.contiguous()};
    TensorLists lists(1);
    for (int64_t count : counts) {
      std::vector<int64_t> sizes = part.sizes().vec();
      sizes[static_cast<size_t>(dim)] = count;
      lists[0].push_back(at::empty(sizes, part.options()));
    }
    allgather(lists, input, gather_opts)->wait(kNoTimeout);
    return lists[0];
  };
  const at::Tensor count = at::full({1}, mine._nnz(), at::kLong);
  std::vector<int64_t> counts;
  for (const at::Tensor& theirs : gather(count, std::vector<int64_t>(static_cast<size_t>(size_), 1), 0)) counts.push_back(theirs.item<int64_t>());
  const at::Tensor indices = at::cat(gather(mine.indices(), counts, 1), 1);
  const at::Tensor values = at::cat(gather(mine.values(), counts, 0), 0);
  const at::Tensor sum = at::sparse_coo_tensor(indices, values, tensor.sizes()).coalesce();
  tensor.copy_(sum);
  Submission done{OpType::_ALLREDUCE_SPARSE, "ccl:all_reduce_sparse", opts.timeout, false};
  done.add(ccl::OpKind::barrier);
  done.outputs = tensors;
  auto work = submit(std::move(done));
  work->wait(kNoTimeout);
  return work;
}

// ---- moving data

WorkPtr ProcessGroupCCL::broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts) {
  const at::Tensor& tensor = only("broadcast", tensors);
  check_root("broadcast", opts.rootRank, size_);
  TORCH_CHECK_VALUE(opts.rootTensor == 0, "ccl: broadcast: unexpected rootTensor ", opts.rootTensor, ": there is one tensor");
  Submission call{OpType::BROADCAST, "ccl:broadcast", opts.timeout, opts.asyncOp};
  ccl::Operation& op = add_elements(call.add(ccl::OpKind::broadcast), tensor);
  op.root = static_cast<int>(opts.rootRank);
  const at::Tensor data = op.root == rank_ ? call.staging.readable(tensor) : call.staging.writable(tensor);
  op.send_buffer = op.recv_buffer = data.data_ptr();
  call.inputs = call.outputs = tensors;
  return submit(std::move(call));
}

WorkPtr ProcessGroupCCL::allgather(TensorLists& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) {
  const at::Tensor& input = only("allgather", inputs);
  const Tensors& parts = per_rank("allgather", outputs, input, size_);
  Submission call{OpType::ALLGATHER, "ccl:all_gather", opts.timeout, opts.asyncOp};
  ccl::Operation& op = add_elements(call.add(ccl::OpKind::allgather), input);
  TORCH_CHECK_VALUE(parts[static_cast<size_t>(rank_)].numel() == input.numel(), "ccl: allgather: Tensors are not equal in size: the input has ",
                    input.numel(), " elements, the output for this rank ", parts[static_cast<size_t>(rank_)].numel());
  op.send_buffer = call.staging.readable(input).data_ptr();
  for (const at::Tensor& part : parts) op.recv_blocks.push_back(block_of(call.staging.writable(part)));
  call.inputs = inputs;
  call.outputs = parts;
  return submit(std::move(call));
}

WorkPtr ProcessGroupCCL::_allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& opts) {
  check_memory("_allgather_base", input);
  check_type("_allgather_base", output, input);
  TORCH_CHECK_VALUE(output.numel() == input.numel() * size_, "ccl: _allgather_base: output tensor size must be equal to world_size times input tensor size: ",
                    output.numel(), " is not ", size_, " x ", input.numel());
  Submission call{OpType::_ALLGATHER_BASE, "ccl:_all_gather_base", opts.timeout, opts.asyncOp};
  ccl::Operation& op = add_elements(call.add(ccl::OpKind::allgather), input);
  op.send_buffer = call.staging.readable(input).data_ptr();
  op.recv_blocks = equal_blocks(call.staging.writable(output), size_);
  call.inputs = {input};
  call.outputs = {output};
  return submit(std::move(call));
}

WorkPtr ProcessGroupCCL::allgather_coalesced(TensorLists& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) {
  TORCH_CHECK_VALUE(outputs.size() == static_cast<size_t>(size_), "ccl: allgather_coalesced: output lists should be equal to world size: ", outputs.size(),
                    " for ", size_, " ranks");
  for (const Tensors& of_rank : outputs) check_equal_lists("allgather_coalesced", of_rank, inputs);
  std::vector<WorkPtr> works;
  for (size_t i = 0; i < inputs.size(); ++i) {
    TensorLists parts(1);
    for (const Tensors& of_rank : outputs) parts[0].push_back(of_rank[i]);
    Tensors input{inputs[i]};
    works.push_back(allgather(parts, input, opts));
  }
  return c10::make_intrusive<CoalescedWork>(rank_, std::move(works));
}

WorkPtr ProcessGroupCCL::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) {
  check_equal_lists("allgather_into_tensor_coalesced", outputs, inputs);
  std::vector<WorkPtr> works;
  for (size_t i = 0; i < inputs.size(); ++i) works.push_back(_allgather_base(outputs[i], inputs[i], opts));
  return c10::make_intrusive<CoalescedWork>(rank_, std::move(works));
}

WorkPtr ProcessGroupCCL::gather(TensorLists& outputs, Tensors& inputs, const c10d::GatherOptions& opts) {
  const at::Tensor& input = only("gather", inputs);
  check_root("gather", opts.rootRank, size_);
  Submission call{OpType::GATHER, "ccl:gather", opts.timeout, opts.asyncOp};
  ccl::Operation& op = add_elements(call.add(ccl::OpKind::gather), input);
  op.root = static_cast<int>(opts.rootRank);
  op.send_buffer = call.staging.readable(input).data_ptr();
  if (op.root == rank_) {
    call.outputs = per_rank("gather", outputs, input, size_);
    for (const at::Tensor& part : call.outputs) {
      TORCH_CHECK_VALUE(part.numel() == input.numel(), "ccl: gather: Tensors are not equal in size: ", part.numel(), " and ", input.numel(), " elements");
      op.recv_blocks.push_back(block_of(call.staging.writable(part)));
    }
  } else {
    TORCH_CHECK_VALUE(outputs.empty(), "ccl: gather: requires empty output on non-root");
  }
  call.inputs = inputs;
  return submit(std::move(call));
}

WorkPtr ProcessGroupCCL::scatter(Tensors& outputs, TensorLists& inputs, const c10d::ScatterOptions& opts) {
  const at::Tensor& output = only("scatter", outputs);
  check_root("scatter", opts.rootRank, size_);
  Submission call{OpType::SCATTER, "ccl:scatter", opts.timeout, opts.asyncOp};
  ccl::Operation& op = add_elements(call.add(ccl::OpKind::scatter), output);
  op.root = static_cast<int>(opts.rootRank);
  op.recv_buffer = call.staging.writable(output).data_ptr();
  if (op.root == rank_) {
    call.inputs = per_rank("scatter", inputs, output, size_);
    for (const at::Tensor& part : call.inputs) {
      TORCH_CHECK_VALUE(part.numel() == output.numel(), "ccl: scatter: Tensors are not equal in size: ", part.numel(), " and ", output.numel(), " elements");
      op.send_blocks.push_back(block_of(call.staging.readable(part)));
    }
  } else {
    TORCH_CHECK_VALUE(inputs.empty(), "ccl: scatter: requires empty input on non-root");
  }
  call.outputs = outputs;
  return submit(std::move(call));
}

WorkPtr ProcessGroupCCL::alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits,
                                       std::vector<int64_t>& input_splits, const c10d::AllToAllOptions& opts) {
  check_memory("alltoall_base", input);
  check_type("alltoall_base", output, input);
  Submission call{OpType::ALLTOALL_BASE, "ccl:all_to_all", opts.timeout, opts.asyncOp};
  ccl::Operation& op = call.add(ccl::OpKind::alltoall);
  op.send_blocks = split_blocks("the input", call.staging.readable(input), input_splits, size_);
  op.recv_blocks = split_blocks("the output", call.staging.writable(output), output_splits, size_);
  call.inputs = {input};
  call.outputs = {output};
  return submit(std::move(call));
}

WorkPtr ProcessGroupCCL::alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& opts) {
  const auto ranks = static_cast<size_t>(size_);
  TORCH_CHECK_VALUE(inputs.size() == ranks && outputs.size() == ranks, "ccl: alltoall: one input and one output for each of ", size_, " ranks are needed, got ",
                    inputs.size(), " and ", outputs.size());
  Submission call{OpType::ALLTOALL, "ccl:all_to_all", opts.timeout, opts.asyncOp};
  ccl::Operation& op = call.add(ccl::OpKind::alltoall);
  check_memory("alltoall", inputs[0]);
  for (size_t rank = 0; rank < ranks; ++rank) {
    check_type("alltoall", inputs[rank], inputs[0]);
    check_type("alltoall", outputs[rank], inputs[0]);
    op.send_blocks.push_back(block_of(call.staging.readable(inputs[rank])));
    op.recv_blocks.push_back(block_of(call.staging.writable(outputs[rank])));
  }
  call.inputs = inputs;
  call.outputs = outputs;
  return submit(std::move(call));
}

// ---- messages

WorkPtr ProcessGroupCCL::send(Tensors& tensors, int to, int tag) {
  const at::Tensor& tensor = only("send", tensors);
  TORCH_CHECK_VALUE(to != rank_, "ccl: send: rank ", rank_, " sends to itself");
  Submission call{OpType::SEND, "ccl:send"};
  ccl::Operation& op = add_elements(call.add(ccl::OpKind::send), tensor);
  op.peer = to;
  op.tag = tag;
  op.send_buffer = call.staging.readable(tensor).data_ptr();
  call.inputs = tensors;
  return submit(std::move(call));
}

WorkPtr ProcessGroupCCL::recv(Tensors& tensors, int from, int tag) {
  TORCH_CHECK_VALUE(from >= 0 && from < size_ && from != rank_, "ccl: recv: unexpected rank ", from, " as source: another one of 0 to ", size_ - 1,
                    " is needed");
  return receive(tensors, from, tag, OpType::RECV);
}

WorkPtr ProcessGroupCCL::recvAnysource(Tensors& tensors, int tag) { return receive(tensors, ccl::kAnySource, tag, OpType::RECVANYSOURCE); }

WorkPtr ProcessGroupCCL::receive(Tensors& tensors, int from, int tag, OpType type) {
  const at::Tensor& tensor = only("recv", tensors);
  Submission call{type, type == OpType::RECV ? "ccl:recv" : "ccl:recvAnySource"};
  ccl::Operation& op = add_elements(call.add(ccl::OpKind::recv), tensor);
  op.peer = from;
  op.tag = tag;
  op.recv_buffer = call.staging.writable(tensor).data_ptr();
  call.inputs = call.outputs = tensors;
  return submit(std::move(call));
}

// ---- barriers

WorkPtr ProcessGroupCCL::barrier(const c10d::BarrierOptions& opts) {
  Submission call{OpType::BARRIER, "ccl:barrier", opts.timeout, opts.asyncOp};
  call.add(ccl::OpKind::barrier);
  return submit(std::move(call));
}

void ProcessGroupCCL::monitoredBarrier(const c10d::BarrierOptions& opts, bool) {
  Submission call{OpType::BARRIER, "ccl:monitored_barrier", opts.timeout, false};
  call.add(ccl::OpKind::barrier);
  submit(std::move(call))->wait(kNoTimeout);
}

}  // namespace trireme::torch_ext
