#include "trireme/cpu/divide.h"

#include <algorithm>
#include <span>

#include "trireme/base/error.h"

namespace trireme::cpu {

namespace {

using Cores = std::span<const Core>;
using Shares = std::vector<std::vector<Core>>;
using PartOf = int Core::*;

constexpr PartOf kLevels[] = {&Core::socket, &Core::node};

int count_of(Cores cores) { return static_cast<int>(cores.size()); }

// Runs of cores in the same socket, or in the same node.
std::vector<Cores> parts_of(Cores cores, PartOf part) {
  std::vector<Cores> parts;
  for (size_t begin = 0, end; begin < cores.size(); begin = end) {
    for (end = begin + 1; end < cores.size() && cores[end].*part == cores[begin].*part;) ++end;
    parts.push_back(cores.subspan(begin, end - begin));
  }
  return parts;
}

// Shares differ by one core at most; the first ranks have the larger ones.
Shares equal_runs(Cores cores, int ranks) {
  Shares shares;
  for (int rank = 0, begin = 0; rank < ranks; ++rank) {
    int count = count_of(cores) / ranks + (rank < count_of(cores) % ranks);
    shares.emplace_back(cores.begin() + begin, cores.begin() + begin + count);
    begin += count;
  }
  return shares;
}

bool fair(double smallest, Cores cores, int ranks) { return smallest * ranks >= 0.8 * count_of(cores); }

// At least as many ranks as parts: how many of them each part gets. Every further rank goes where it will have most, so that the smallest
// share becomes as large as it can be.
std::vector<int> ranks_per_part(const std::vector<Cores>& parts, int ranks) {
  std::vector<int> counts(parts.size(), 1);
  for (int left = ranks - static_cast<int>(parts.size()); left > 0; --left) {
    size_t best = 0;
    auto share = [&](size_t part) { return static_cast<double>(parts[part].size()) / (counts[part] + 1); };
    for (size_t part = 1; part < parts.size(); ++part)
      if (share(part) > share(best)) best = part;
    ++counts[best];
  }
  return counts;
}

// Fewer ranks than parts: whole parts in runs, each cut at the boundary nearest to where an equal share would end.
Shares whole_parts(const std::vector<Cores>& parts, Cores cores, int ranks) {
  Shares shares(static_cast<size_t>(ranks));
  int before = 0;
  for (Cores part : parts) {
    int rank = (2 * before + count_of(part)) * ranks / (2 * count_of(cores));  // by the part's middle
    shares[static_cast<size_t>(rank)].insert(shares[static_cast<size_t>(rank)].end(), part.begin(), part.end());
    before += count_of(part);
  }
  return shares;
}

Shares divide(Cores cores, int ranks, std::span<const PartOf> levels) {
  if (ranks == 1) return {{cores.begin(), cores.end()}};
  if (levels.empty()) return equal_runs(cores, ranks);
  std::vector<Cores> parts = parts_of(cores, levels[0]);
  if (parts.size() == 1) return divide(cores, ranks, levels.subspan(1));

  if (ranks < static_cast<int>(parts.size())) {
    Shares shares = whole_parts(parts, cores, ranks);
    size_t smallest = std::ranges::min(shares, {}, &std::vector<Core>::size).size();
    return fair(static_cast<double>(smallest), cores, ranks) ? shares : equal_runs(cores, ranks);
  }

  std::vector<int> counts = ranks_per_part(parts, ranks);
  Shares shares;
  for (size_t part = 0; part < parts.size(); ++part) {
    if (!fair(static_cast<double>(parts[part].size()) / counts[part], cores, ranks)) return equal_runs(cores, ranks);
    for (auto& share : divide(parts[part], counts[part], levels.subspan(1))) shares.push_back(std::move(share));
  }
  return shares;
}

}  // namespace

std::vector<std::vector<Core>> divide(const std::vector<Core>& cores, int ranks) {
  TRIREME_ENFORCE(ranks >= 1 && count_of(cores) >= ranks, ranks, " ranks on ", cores.size(), " cores");
  return divide(cores, ranks, kLevels);
}

}  // namespace trireme::cpu
