// Tensors as the collectives see them: memory in one piece, a datatype, a count.
#pragma once

#include <ATen/ATen.h>

#include <functional>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <utility>
#include <vector>

#include "trireme/ccl/operation.h"

namespace trireme::torch_ext {

// Whether the memory of a tensor is its elements, one after another.
bool lies_end_to_end(const at::Tensor& tensor);

// A new tensor of this one's type and shape that does.
at::Tensor end_to_end(const at::Tensor& tensor);

// What an operation needs beside the caller's tensors. Held until it is complete.
//
// A tensor whose elements do not lie end to end (a transposed one, a lazy conjugate) is copied to one that does when the operation starts, as operations
// before it may write to it, and copied back when the operation is complete. Tensors that do lie so are used where they are.
class Staging {
 public:
  // A tensor to read from, to write to, or both. The operation uses the one that is returned.
  at::Tensor readable(const at::Tensor& tensor);
  at::Tensor writable(const at::Tensor& tensor);
  at::Tensor updatable(const at::Tensor& tensor);
  // `ours`, to which `fill` will write what the operation reads.
  at::Tensor computed(const at::Tensor& ours, std::function<void(at::Tensor& ours)> fill);
  void hold(const at::Tensor& tensor) { held_.push_back(tensor); }

  bool has_copies_to_take() const { return !fills_.empty(); }
  // The operation starts. What was copied from is held on: the thread that drives must not let go of a tensor of Python's.
  void take_copies();
  // The operation is complete: results go where the caller wants them.
  void copy_back() const;

 private:
  std::vector<at::Tensor> held_;
  std::vector<std::pair<at::Tensor, std::function<void(at::Tensor& ours)>>> fills_;  // in their order: one may read what another has written
  std::vector<std::pair<at::Tensor, at::Tensor>> copies_;                            // the caller's, ours
};

// How the elements of a tensor are counted: complex numbers as two real ones, and in operations that only move data a type that the library
// does not know as bytes.
struct Elements {
  ccl::DataType type;
  size_t count;
};
Elements elements_to_move(const at::Tensor& tensor);
// Throws c10::TypeError or c10::ValueError for a datatype or a reduction that has no meaning here.
Elements elements_to_reduce(const at::Tensor& tensor, const c10d::ReduceOp& op);
ccl::Reduction reduction_of(const c10d::ReduceOp& op);

// PREMUL_SUM: the operation's factor as it is now, for tensors of this type.
at::Tensor factor_of(const c10d::ReduceOp& op, const at::Tensor& tensor);

ccl::Block block_of(const at::Tensor& tensor);

}  // namespace trireme::torch_ext
