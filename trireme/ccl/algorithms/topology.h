// Who is where: the ranks of a communicator by host.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

namespace trireme::ccl {

struct Topology {
  Topology(int my_rank, std::vector<int> host_of_rank) : rank(my_rank), hosts(std::move(host_of_rank)) {
    members.resize(static_cast<size_t>(*std::max_element(hosts.begin(), hosts.end())) + 1);
    local.resize(hosts.size());
    for (int r = 0; r < size(); ++r) {
      local[r] = static_cast<int>(members[hosts[r]].size());
      members[hosts[r]].push_back(r);
    }
    lanes = local_size();
    for (const auto& ranks : members) lanes = std::min(lanes, static_cast<int>(ranks.size()));
  }

  int size() const { return static_cast<int>(hosts.size()); }
  int host_count() const { return static_cast<int>(members.size()); }
  int my_host() const { return hosts[rank]; }
  int local_size() const { return static_cast<int>(members[my_host()].size()); }
  // The rank that does lane `lane`'s work on a host.
  int lane_rank(int host, int lane) const { return members[host][lane]; }
  bool one_host() const { return host_count() == 1; }

  int rank;
  std::vector<int> hosts;                 // by rank
  std::vector<int> local;                 // by rank: its number within its host
  std::vector<std::vector<int>> members;  // by host: its ranks, ascending
  // Work between hosts is cut into this many lanes, done by the first ranks of each host at once: the smallest host decides.
  int lanes = 1;
};

}  // namespace trireme::ccl
