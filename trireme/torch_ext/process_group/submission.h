// One call of a c10d method as operations of the library, before they are submitted. Shared by the files of ProcessGroupCCL.
#pragma once

#include "trireme/torch_ext/process_group/process_group_ccl.h"

namespace trireme::torch_ext {

struct ProcessGroupCCL::Submission {
  Submission(c10d::OpType op_type, const char* profiler_title, std::chrono::milliseconds time_allowed = c10d::kUnsetTimeout, bool async = true)
      : type(op_type), title(profiler_title), timeout(time_allowed), is_async(async) {}

  c10d::OpType type;
  const char* title;
  std::chrono::milliseconds timeout;
  bool is_async;  // the caller will not wait at once
  std::vector<ccl::Operation> operations;
  Staging staging;
  std::vector<at::Tensor> inputs;
  std::vector<at::Tensor> outputs;

  ccl::Operation& add(ccl::OpKind kind) {
    operations.emplace_back();
    operations.back().kind = kind;
    return operations.back();
  }
};

}  // namespace trireme::torch_ext
