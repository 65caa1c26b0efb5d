// Who waited for whom. Ranks do the same number of steps and meet in each: the one that computes longest waits least, and
// the others wait for it.
#include <algorithm>
#include <cstdio>

#include "trireme/base/error.h"
#include "trireme/trainer/report/progress.h"

namespace trireme::trainer {
namespace {

// Below this share of a run, waiting is the network's and the clock's, not a rank's.
constexpr double kWorthSaying = 0.05;
constexpr size_t kNamed = 3;  // ranks that are named; the others are counted

struct Waiter {
  size_t rank;
  double seconds;
};

std::string seconds_text(double seconds) {
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, seconds < 10 ? "%.2f s" : "%.1f s", seconds);
  return buffer;
}

std::string percent_text(double share) {
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, "%.0f %%", share * 100);
  return buffer;
}

double share_of_wait(const RankTimes& times) {
  const double all = times.compute_seconds + times.wait_seconds;
  return all > 0 ? times.wait_seconds / all : 0;
}

// The others, who waited longest first.
std::vector<Waiter> waiters(const std::vector<RankTimes>& ranks, size_t slowest) {
  std::vector<Waiter> result;
  for (size_t rank = 0; rank < ranks.size(); ++rank)
    if (rank != slowest) result.push_back({rank, ranks[rank].wait_seconds});
  std::ranges::stable_sort(result, std::ranges::greater(), &Waiter::seconds);
  return result;
}

std::string list_of(const std::vector<Waiter>& all) {
  std::string text;
  for (size_t i = 0; i < std::min(all.size(), kNamed); ++i)
    text += str(i == 0 ? "" : ", ", "rank ", all[i].rank, i == 0 ? " waited " : " ", seconds_text(all[i].seconds),
                i == 0 ? " for it" : "");
  if (all.size() > kNamed) text += str(" and ", all.size() - kNamed, " more at most ", seconds_text(all[kNamed].seconds));
  return text;
}

}  // namespace

std::string straggler_sentence(const std::vector<RankTimes>& ranks) {
  if (ranks.size() < 2) return "";
  const auto by_wait = [](const RankTimes& a, const RankTimes& b) { return a.wait_seconds < b.wait_seconds; };
  const auto [least, most] = std::ranges::minmax_element(ranks, by_wait);
  const auto slowest = static_cast<size_t>(std::ranges::max_element(ranks, {}, &RankTimes::compute_seconds) - ranks.begin());
  // What even the rank that waited least had to wait is nobody's fault: it is the collectives themselves.
  const double excess = most->wait_seconds - least->wait_seconds;
  const double run = most->compute_seconds + most->wait_seconds;
  if (run <= 0 || excess / run < kWorthSaying)
    return str("the ", ranks.size(), " ranks kept step: each waited for the others ", seconds_text(least->wait_seconds),
               " to ", seconds_text(most->wait_seconds), " (at most ", percent_text(share_of_wait(*most)), " of its time)");
  const std::vector<Waiter> others = waiters(ranks, slowest);
  return str("rank ", slowest, " was the slowest: it computed ", seconds_text(ranks[slowest].compute_seconds), "; ",
             list_of(others), " (", percent_text(share_of_wait(ranks[others[0].rank])), " of rank ", others[0].rank,
             "'s time)");
}

}  // namespace trireme::trainer
