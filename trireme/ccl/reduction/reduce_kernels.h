// The fast paths, one entry per ISA level, all made from reduce-inl.h. Only reducer.cpp calls them.
#pragma once

#include <cstddef>

#include "trireme/ccl/reduction/reducer.h"

namespace trireme::ccl {

// A reduction in its canonical form (see canonical() in reducer.cpp):
//   op      sum, prod, min or max; band, bor or bxor for unsigned integers and boolean
//   type    signed integers only with min and max; boolean only with the bitwise three
struct ReduceCall {
  DataType type;
  Reduction op;
  Stage stage;
  const void* const* sources;
  size_t source_count;
  void* dst;
  size_t count;
  int divisor;  // floating point: the result is divided by it before it is rounded; 0: it is not
  Access access;
};

void reduce_scalar(const ReduceCall& call);
void reduce_avx2(const ReduceCall& call);
void reduce_avx512(const ReduceCall& call);

}  // namespace trireme::ccl
