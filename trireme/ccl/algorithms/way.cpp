#include "trireme/ccl/algorithms/way.h"

#include <algorithm>

#include "trireme/base/env.h"

namespace trireme::ccl {
namespace {

// A way shows what it takes only after it has been used for a while: slots, once all of their memory has been used. The first half of a trial does not count.
constexpr size_t kTrialBytes = 4 << 20;
constexpr uint32_t kLeastTrialCalls = 2, kMostTrialCalls = 256;
// A way that takes r times as long as the best is tried again after r times so many trials' calls: soon when it has just been the best, which may have been a
// mistake, and ever later, up to a limit, when it has not become the best.
constexpr uint32_t kSoonAgain = 8, kFirstAgain = 16, kLateAgain = 64;
// At most: what was once hopeless may have become the best.
constexpr double kMostSlower = 8;
// Calls that take long need not be many before they count.
constexpr std::chrono::milliseconds kLongTime{10};
// Outside of trials, one call of so many has to be timed.
constexpr uint32_t kTimedCalls = 4;
// Another way has to be that much faster than the one in use.
constexpr double kFaster = 1.05;

uint32_t trial_calls(size_t bytes) {
  return static_cast<uint32_t>(std::clamp<size_t>(kTrialBytes / std::max<size_t>(bytes, 1), kLeastTrialCalls, kMostTrialCalls));
}

}  // namespace

// What a call took since the last time, were it not for others on the machine, who only add to it: a little less than the median.
void WayChooser::Estimate::settle() {
  auto middle = recent.begin() + (count - 1) * 3 / 8;
  std::nth_element(recent.begin(), middle, recent.begin() + count);
  cost = *middle;
  count = 0;
  time = {};
}

WayChooser::Row& WayChooser::row_of(OpKind kind, bool in_place, size_t bytes) {
  const auto size = static_cast<size_t>(std::bit_width(std::min(bytes, kFarBeyondCaches)));
  std::unique_ptr<Row>& row = rows_[(static_cast<size_t>(kind) * 2 + (in_place ? 1 : 0)) * kSizes + size];
  if (!row) row = std::make_unique<Row>();
  return *row;
}

Way WayChooser::choose(OpKind kind, bool in_place, size_t bytes, bool direct_is_possible) {
  const int first = direct_is_possible ? 0 : 1;
  if (only_) return std::max(*only_, static_cast<Way>(first));
  if (!measures_) return direct_is_possible ? Way::direct : unmeasured_way(bytes);
  auto possible = [&](int way) { return way >= first && (static_cast<Way>(way) != Way::past || bytes >= kPastCachesBytes); };
  Row& row = row_of(kind, in_place, bytes);
  ++row.calls;
  wants_time_ = true;
  if (row.trial_calls != 0 && possible(row.trial)) return static_cast<Way>(row.trial);
  int best = possible(row.best) ? row.best : first;
  for (int way = 0; way < kWays; ++way) {
    if (!possible(way)) continue;
    if (row.ways[way].cost == 0) return begin_trial(row, way, bytes);
    if (row.ways[way].cost * kFaster < row.ways[best].cost) best = way;
  }
  if (row.best != best) row.ways[row.best].again = kSoonAgain;
  row.best = best;
  for (int way = 0; way < kWays; ++way) {
    if (!possible(way) || way == best) continue;
    const double slower = std::clamp(row.ways[way].cost / row.ways[best].cost, 1.0, kMostSlower);
    if (row.calls - row.ways[way].last >= slower * row.ways[way].again * trial_calls(bytes)) return begin_trial(row, way, bytes);
  }
  wants_time_ = row.calls % kTimedCalls == 0;
  return static_cast<Way>(best);
}

Way WayChooser::begin_trial(Row& row, int way, size_t bytes) {
  Estimate& estimate = row.ways[way];
  estimate.again = estimate.cost == 0 ? kFirstAgain : std::min(2 * estimate.again, kLateAgain);
  estimate.count = 0;
  estimate.time = {};
  row.trial = way;
  row.trial_calls = trial_calls(bytes);
  return static_cast<Way>(way);
}

void WayChooser::took(OpKind kind, bool in_place, size_t bytes, Way way, std::chrono::nanoseconds time) {
  if (only_ || !measures_) return;
  Row& row = row_of(kind, in_place, bytes);
  Estimate& estimate = row.ways[static_cast<int>(way)];
  estimate.last = row.calls;
  const bool trial = row.trial_calls != 0 && row.trial == static_cast<int>(way);
  if (trial && --row.trial_calls >= std::min(trial_calls(bytes) / 2, kMostCounted)) return;
  estimate.recent[estimate.count++] = std::max(1.0, 1e3 * static_cast<double>(time.count())) / static_cast<double>(std::max<size_t>(bytes, 1));
  estimate.time += time;
  const bool enough = estimate.count == kMostCounted || (estimate.count >= 2 && estimate.time >= kLongTime);
  if (trial ? row.trial_calls == 0 : enough) estimate.settle();
}

std::optional<Way> way_by_hand() {
  const std::string name = env::text("TRIREME_NODE_WAY");
  if (name == "direct") return Way::direct;
  if (name == "slots") return Way::slots;
  if (name == "past") return Way::past;
  if (name == "around") return Way::around;
  return std::nullopt;
}

}  // namespace trireme::ccl
