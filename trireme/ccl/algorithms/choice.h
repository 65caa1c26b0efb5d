// Which algorithm an operation of a given size uses: CCL_ALLREDUCE and its siblings, `algorithm[:first-last][;...]`, sizes in bytes.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <vector>

#include "trireme/ccl/operation.h"

namespace trireme::ccl {

enum class Algorithm { automatic, hierarchical, flat, ring };

// One clause of a CCL_ALLREDUCE-like variable.
struct AlgorithmRange {
  Algorithm algorithm = Algorithm::automatic;
  size_t first_bytes = 0;
  size_t last_bytes = SIZE_MAX;
};

// Throws InvalidArgument naming the variable, the clause and what is allowed. oneCCL's names are accepted: those of algorithms that we do
// not have choose the hierarchy, which is what they approximate.
std::vector<AlgorithmRange> parse_algorithms(const std::string& variable, const std::string& text);

// What the variables say, read when it is made. A communicator keeps one: what is set later is for later communicators.
class AlgorithmChoices {
 public:
  AlgorithmChoices();

  // The last clause that covers the size wins.
  Algorithm of(OpKind kind, size_t bytes) const;
  // Whether any clause concerns this operation: where the size that decides must first be found out.
  bool concern(OpKind kind) const { return !ranges_[static_cast<size_t>(kind)].empty(); }

 private:
  std::array<std::vector<AlgorithmRange>, kOpKinds> ranges_;
};

}  // namespace trireme::ccl
