// Which algorithm an operation of a given size uses: CCL_ALLREDUCE and its siblings, `algorithm[:first-last][;...]`, sizes in bytes.
#pragma once

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

// Reads the environment once per process. The last clause that covers the size wins.
Algorithm chosen_algorithm(OpKind kind, size_t bytes);
// Whether any clause concerns this operation: where the size that decides must first be found out.
bool has_choice(OpKind kind);
// Reads the environment again: for tests, and when a communicator is made.
void reload_algorithm_choices();

}  // namespace trireme::ccl
