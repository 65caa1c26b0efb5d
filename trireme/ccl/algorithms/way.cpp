#include "trireme/ccl/algorithms/way.h"

#include <algorithm>
#include <bit>
#include <optional>

#include "trireme/base/env.h"

namespace trireme::ccl {
namespace {

// The first call of a size finds memory that was never touched, so one sample is not enough.
constexpr uint32_t kFirstSamples = 2;
// A way that takes r times as long as the best is tried again after this many times r calls.
constexpr int64_t kCallsBetweenTrials = 40;
// Nor is one call that was held up by something else: what counts of a sample and of a ratio is bounded.
constexpr int64_t kMostSlower = 8;

}  // namespace

WayChooser::Row& WayChooser::row_of(OpKind kind, bool in_place, size_t bytes) {
  return rows_[{kind, in_place, std::bit_width(bytes)}];
}

Way WayChooser::choose(OpKind kind, bool in_place, size_t bytes, bool direct_is_possible) {
  const int first = direct_is_possible ? 0 : 1;
  if (only_) return std::max(*only_, static_cast<Way>(first));
  if (!measures_) return static_cast<Way>(first);
  Row& row = row_of(kind, in_place, bytes);
  ++row.calls;
  int best = first;
  for (int way = first; way < kWays; ++way) {
    if (row.ways[way].samples < kFirstSamples) return static_cast<Way>(way);
    if (row.ways[way].ns < row.ways[best].ns) best = way;
  }
  for (int way = first; way < kWays; ++way) {
    const int64_t slower = std::clamp<int64_t>(row.ways[way].ns / std::max<int64_t>(row.ways[best].ns, 1), 1, kMostSlower);
    if (way != best && row.calls - row.ways[way].last >= kCallsBetweenTrials * slower) return static_cast<Way>(way);
  }
  return static_cast<Way>(best);
}

// Down at once, since nothing makes a call faster than it is; up by an eighth.
void WayChooser::took(OpKind kind, bool in_place, size_t bytes, Way way, std::chrono::nanoseconds time) {
  if (only_ || !measures_) return;
  Row& row = row_of(kind, in_place, bytes);
  Estimate& estimate = row.ways[static_cast<int>(way)];
  const int64_t ns = std::max<int64_t>(time.count(), 1);
  if (estimate.samples == 0 || ns < estimate.ns) estimate.ns = ns;
  else estimate.ns += (std::min(ns, kMostSlower * estimate.ns) - estimate.ns) / 8;
  ++estimate.samples;
  estimate.last = row.calls;
}

std::optional<Way> way_by_hand() {
  const std::string name = env::text("TRIREME_NODE_WAY");
  if (name == "direct") return Way::direct;
  if (name == "slots") return Way::slots;
  if (name == "around") return Way::around;
  return std::nullopt;
}

}  // namespace trireme::ccl
