// Element-wise reduction of P buffers into one, in one pass over memory.
//
// Guarantee: dst[i] = src[0][i] op src[1][i] op ... in that order, so the bits depend on the order of the sources alone:
// not on how a buffer is cut into pieces, the ISA level, alignment or the number of threads. bf16 and fp16 accumulate in fp32 and
// are rounded once, to nearest even. A partial result (between the two stages of a hierarchical sum) stays in the accumulator type.
// (Of two NaNs that meet in a sum, which one's payload survives is not fixed.)
//
// Meaning: min and max of floating point are NaN if any source is, as in torch. Integers wrap; their avg is the wrapped sum
// divided toward zero. boolean: any byte but 0 is true, results are 0 or 1; sum, max and bor are "or", prod, min and band
// are "and", avg has no meaning.
#pragma once

#include <cstddef>
#include <span>

#include "trireme/ccl/types.h"

namespace trireme::ccl {

// Where in a multi-stage reduction a call stands. `avg` divides only when the result is final.
enum class Stage {
  whole,    // storage in, storage out
  first,    // storage in, accumulator out
  middle,   // accumulator in, accumulator out
  last,     // accumulator in, storage out
};

// Value type; copies are cheap. Threads may share it. Never blocks.
// Where the data is, and goes.
enum class Access {
  cached,
  streaming,    // results go around the caches: for those far larger than them
  interleaved,  // sources lie in memory: four parts are read in turn, because processors prefetch within a page, and so fetch from four at once
};

class Reducer {
 public:
  // `ranks` is what avg divides by. Throws InvalidArgument for a pair that has no meaning (bitwise on floating point),
  // or for Reduction::custom without a function.
  Reducer(DataType type, Reduction op, int ranks, CustomReduction custom = nullptr);

  DataType type() const { return type_; }
  Reduction op() const { return op_; }
  size_t element_bytes() const;      // of the storage type
  size_t accumulator_bytes() const;  // 4 for bf16 and fp16, else (and for custom) as stored

  // dst may be one of the sources (exactly, not shifted, and not in Stage::first); the sources may not be empty.
  // No alignment is needed.
  void reduce(std::span<const void* const> sources, void* dst, size_t count, Stage stage = Stage::whole,
              Access access = Access::cached) const;

 private:
  DataType type_;
  Reduction op_;
  int ranks_;
  CustomReduction custom_;
};

// The truth that the fast paths are tested against: scalar, element by element.
void reduce_reference(DataType type, Reduction op, int ranks, std::span<const void* const> sources, void* dst,
                      size_t count, Stage stage);

}  // namespace trireme::ccl
