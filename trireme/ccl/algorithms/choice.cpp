#include "trireme/ccl/algorithms/choice.h"

#include <charconv>
#include <map>
#include <sstream>

#include "trireme/base/env.h"
#include "trireme/base/error.h"
#include "trireme/base/log.h"

namespace trireme::ccl {
namespace {

const std::map<std::string, Algorithm>& own_names() {
  static const std::map<std::string, Algorithm> names = {
      {"auto", Algorithm::automatic}, {"hierarchical", Algorithm::hierarchical}, {"flat", Algorithm::flat}, {"ring", Algorithm::ring}};
  return names;
}

// oneCCL's, with the nearest thing that we have.
const std::map<std::string, Algorithm>& foreign_names() {
  static const std::map<std::string, Algorithm> names = {
      {"direct", Algorithm::hierarchical},      {"rabenseifner", Algorithm::hierarchical}, {"nreduce", Algorithm::hierarchical},
      {"double_tree", Algorithm::hierarchical}, {"recursive_doubling", Algorithm::hierarchical},
      {"2d", Algorithm::hierarchical},          {"topo", Algorithm::hierarchical},         {"tree", Algorithm::hierarchical},
      {"naive", Algorithm::flat},               {"multi_bcast", Algorithm::flat},          {"scatter", Algorithm::flat},
      {"scatter_barrier", Algorithm::flat}};
  return names;
}

Algorithm parse_name(const std::string& variable, const std::string& name) {
  if (auto own = own_names().find(name); own != own_names().end()) return own->second;
  if (auto foreign = foreign_names().find(name); foreign != foreign_names().end()) {
    log_once(LogLevel::info, str(variable, "=", name, ": oneCCL's; Trireme uses ", foreign->second == Algorithm::flat ? "flat" : "hierarchical"));
    return foreign->second;
  }
  throw InvalidArgument(str(variable, ": unknown algorithm '", name, "': expected auto, hierarchical, flat, ring or a oneCCL name (docs/ccl.md)"));
}

size_t parse_size(const std::string& variable, const std::string& text) {
  if (text == "max") return SIZE_MAX;
  size_t value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) {
    throw InvalidArgument(str(variable, ": '", text, "' is not a size in bytes: expected a number or max"));
  }
  return value;
}

AlgorithmRange parse_clause(const std::string& variable, const std::string& clause) {
  AlgorithmRange range;
  size_t colon = clause.find(':');
  range.algorithm = parse_name(variable, clause.substr(0, colon));
  if (colon == std::string::npos) return range;
  std::string sizes = clause.substr(colon + 1);
  size_t dash = sizes.find('-');
  if (dash == std::string::npos) throw InvalidArgument(str(variable, ": '", sizes, "' is not a range: expected first-last"));
  range.first_bytes = parse_size(variable, sizes.substr(0, dash));
  range.last_bytes = parse_size(variable, sizes.substr(dash + 1));
  if (range.first_bytes > range.last_bytes) throw InvalidArgument(str(variable, ": the range '", sizes, "' is empty"));
  return range;
}

struct NamedKind {
  const char* variable;
  OpKind kind;
};
constexpr NamedKind kVariables[] = {
    {"CCL_ALLREDUCE", OpKind::allreduce}, {"CCL_ALLGATHER", OpKind::allgather}, {"CCL_ALLGATHERV", OpKind::allgather},
    {"CCL_ALLTOALL", OpKind::alltoall},   {"CCL_ALLTOALLV", OpKind::alltoall},  {"CCL_BARRIER", OpKind::barrier},
    {"CCL_BCAST", OpKind::broadcast},     {"CCL_BROADCAST", OpKind::broadcast}, {"CCL_REDUCE", OpKind::reduce},
    {"CCL_REDUCE_SCATTER", OpKind::reduce_scatter}};

}  // namespace

std::vector<AlgorithmRange> parse_algorithms(const std::string& variable, const std::string& text) {
  std::vector<AlgorithmRange> ranges;
  std::istringstream clauses(text);
  for (std::string clause; std::getline(clauses, clause, ';');) {
    if (!clause.empty()) ranges.push_back(parse_clause(variable, clause));
  }
  return ranges;
}

AlgorithmChoices::AlgorithmChoices() {
  for (const NamedKind& named : kVariables) {
    auto ranges = parse_algorithms(named.variable, env::text(named.variable));
    auto& all = ranges_[static_cast<size_t>(named.kind)];
    all.insert(all.end(), ranges.begin(), ranges.end());
  }
}

Algorithm AlgorithmChoices::of(OpKind kind, size_t bytes) const {
  Algorithm chosen = Algorithm::automatic;
  for (const AlgorithmRange& range : ranges_[static_cast<size_t>(kind)]) {
    if (bytes >= range.first_bytes && bytes <= range.last_bytes) chosen = range.algorithm;
  }
  return chosen;
}

}  // namespace trireme::ccl
