// What a communicator tells of itself: its ranks and ways, what it waits for.
#include <algorithm>
#include <string>

#include "trireme/base/error.h"
#include "trireme/ccl/comm/state.h"

namespace trireme::ccl {

std::string CommunicatorState::describe() const {
  std::string text = str(topology_.size(), " ranks on ", topology_.host_count(), topology_.one_host() ? " host" : " hosts");
  if (node_->size() > 1) {
    text += access_ == PeerMemory::Access::same_process ? ", threads of one process"
            : access_ == PeerMemory::Access::direct     ? ", shared memory with direct reads"
                                                        : ", shared memory without direct reads";
  }
  if (!topology_.one_host()) text += str(bulk_ ? ", ofi (" : ", tcp (", describe_ways(), ")");
  return text;
}

// "node0: eth0 10.77.0.1, node1: eth0 10.77.0.2": a host's first rank stands for all of its ranks.
std::string CommunicatorState::describe_ways() const {
  constexpr int kShown = 8;
  std::string text;
  for (int host = 0; host < std::min(topology_.host_count(), kShown); ++host) {
    const auto rank = static_cast<size_t>(topology_.members[host].front());
    text += str(host == 0 ? "" : ", ", host_names_[rank], ": ", ways_[rank]);
  }
  return topology_.host_count() > kShown ? str(text, " and ", topology_.host_count() - kShown, " more") : text;
}

// Leaves, before a sleep, what a report will say: whoever asks must not touch the driver's things.
void CommunicatorState::remember_waits() {
  std::string text = collective_started_ ? str(ccl::describe(collectives_.front()->op), " #", collectives_.front()->number) : "messages";
  text += ", waiting for " + engine_.describe_waits();
  std::lock_guard lock(report_mutex_);
  waits_ = std::move(text);
  waited_ = node_->waited();
}

std::string CommunicatorState::report() {
  if (in_forked_child()) return str("rank ", topology_.rank, ": of the parent process");
  std::lock_guard lock(report_mutex_);
  std::string text = str("rank ", topology_.rank, ": ", !has_work() ? "nothing under way" : waits_.empty() ? "working" : waits_);
  for (size_t peer = 0; peer < waited_.size(); ++peer) {
    if (static_cast<int>(peer) == node_->rank()) continue;
    text += str("; waited ", std::chrono::duration<double>(waited_[peer]).count(), " s for rank ", node_->global_rank(static_cast<int>(peer)));
  }
  return text;
}

}  // namespace trireme::ccl
