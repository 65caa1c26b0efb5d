#include "trireme/ccl/comm/creation.h"

#include <sys/resource.h>

#include <algorithm>
#include <cstdlib>
#include <mutex>

#include "trireme/base/env.h"
#include "trireme/base/error.h"
#include "trireme/base/log.h"
#include "trireme/ccl/bootstrap/forked_child.h"
#include "trireme/ccl/bootstrap/socket.h"
#include "trireme/ccl/comm/debug_signal.h"
#include "trireme/ccl/comm/watcher.h"
#include "trireme/ccl/fabric/ofi/ofi_lane.h"
#include "trireme/ccl/fabric/tcp/tcp_mesh.h"

namespace trireme::ccl {
namespace {

// A communicator needs a few descriptors per rank; a soft limit of 1024 is soon reached by programs that make many. As Go's and
// Java's run times do, raise it to what the administrator allows.
void raise_descriptor_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

bool is_unset_or(const char* name, const char* value) {
  const char* set = std::getenv(name);
  return set == nullptr || std::string_view(set) == value;
}

// A forked child that keeps the launcher's channel open keeps mpirun from seeing that its rank has died. RANK and WORLD_SIZE may have been made of
// PMI_RANK and PMI_SIZE; the workers of a torchrun below mpirun, which have others, do not inherit the channel, and its number is something else's there.
void keep_launcher_channel_to_ourselves() {
  const char *channel = std::getenv("PMI_FD"), *rank = std::getenv("PMI_RANK"), *size = std::getenv("PMI_SIZE");
  if (!channel || !rank || !size || std::getenv("TORCHELASTIC_RUN_ID")) return;
  if (is_unset_or("RANK", rank) && is_unset_or("WORLD_SIZE", size)) register_foreign_socket(std::atoi(channel));
}

CommunicatorOptions with_defaults(CommunicatorOptions options) {
  auto timeout = env::duration("TRIREME_TIMEOUT_MS");
  if (options.timeout == std::chrono::milliseconds::max() && timeout.count() > 0) options.timeout = timeout;
  return options;
}

// Log lines carry the rank in the first communicator, where the process is one rank.
void tell_log(const Control& control, const LocalGroup& local) {
  auto here = [](const LocalPeer& peer) { return peer.pid == getpid(); };
  static std::once_flag once;
  if (std::count_if(local.members.begin(), local.members.end(), here) == 1) std::call_once(once, [&] { set_log_rank(control.rank()); });
}

std::vector<PeerProcess> processes_of(const LocalGroup& local) {
  std::vector<PeerProcess> processes;
  for (const LocalPeer& peer : local.members) {
    if (peer.pid == getpid()) continue;
    PeerProcess process{peer.global_rank, peer.pid, nullptr, false};
    if (peer.pid != 0) process.pidfd = open_pidfd(peer.pid, process.gone);
    processes.push_back(std::move(process));
  }
  return processes;
}

// Whether every one of them can be watched. Where pids are not visible, or the kernel gives no pidfd, the control connections are kept for it.
bool all_watched(const std::vector<PeerProcess>& processes) {
  return std::all_of(processes.begin(), processes.end(), [](const PeerProcess& process) { return process.pidfd || process.gone; });
}

// What the kernel has chosen for the connections to other hosts.
std::string way_to_others(const std::vector<std::vector<std::unique_ptr<Stream>>>& streams) {
  for (const auto& to_peer : streams) {
    if (!to_peer.empty()) return with_interface_name(local_address(to_peer.front()->fd()));
  }
  return "";
}

// oneCCL's variable is a wish, where ours is not set: old scripts set it by habit.
std::unique_ptr<BulkLane> connect_bulk_lane(Control& control, const std::vector<int>& hosts, Deadline deadline) {
  const bool wished = !env::is_set("TRIREME_FABRIC") && env::text("CCL_ATL_TRANSPORT") == "ofi";
  if (!wished && env::text("TRIREME_FABRIC") != "ofi") return nullptr;
  try {
    return connect_ofi_lane(control, hosts, deadline);
  } catch (const Unsupported& error) {  // on every rank
    if (!wished) throw;
    log_once(LogLevel::warn, str("CCL_ATL_TRANSPORT=ofi: tcp is used instead: ", error.what()));
    return nullptr;
  }
}

}  // namespace

Deadline connect_deadline(const CommunicatorOptions& options) {
  return Deadline::after(options.connect_timeout.count() > 0 ? options.connect_timeout : env::duration("CCL_KVS_CONNECTION_TIMEOUT"));
}

std::shared_ptr<CommunicatorState> build_communicator(std::unique_ptr<Control> control, const CommunicatorOptions& options,
                                                      Deadline deadline) {
  static const bool once = (raise_descriptor_limit(), keep_launcher_channel_to_ourselves(), true);
  static_cast<void>(once);
  std::string label = options.host_label.empty() ? env::text("TRIREME_HOST") : options.host_label;
  Meeting meeting = meet_locally(*control, label, deadline);
  CommunicatorParts parts;
  parts.rank = control->rank();
  parts.options = with_defaults(options);
  tell_log(*control, meeting.local);
  bool several_hosts = *std::max_element(meeting.hosts.begin(), meeting.hosts.end()) > 0;
  if (several_hosts) {
    parts.streams = connect_tcp_mesh(*control, meeting.hosts, deadline);
    parts.bulk = connect_bulk_lane(*control, meeting.hosts, deadline);
  }
  // Nobody goes on, or closes anything, before everybody is here.
  bool keep_control = several_hosts;
  parts.processes = processes_of(meeting.local);
  std::string mine = str(all_watched(parts.processes) ? "watched " : "unwatched ", way_to_others(parts.streams));
  for (const std::string& theirs : control->allgather(mine, deadline)) {
    keep_control = keep_control || theirs.starts_with("unwatched ");
    parts.ways.push_back(theirs.substr(std::min(theirs.find(' ') + 1, theirs.size())));
  }
  parts.hosts = std::move(meeting.hosts);
  parts.host_names = std::move(meeting.host_names);
  parts.local = std::move(meeting.local);
  if (keep_control) parts.control = std::move(control);
  auto state = std::make_shared<CommunicatorState>(std::move(parts));
  state->open();
  report_on_signal(state);
  if (log_enabled(LogLevel::info) && state->topology().rank == 0) log(LogLevel::info, "communicator: " + state->describe());
  return state;
}

std::vector<std::shared_ptr<CommunicatorState>> build_thread_communicators(int size, const CommunicatorOptions& options) {
  if (size < 1 || size > kMaxLocalRanks) throw InvalidArgument(str("size = ", size, ": threads as ranks may be 1 to ", kMaxLocalRanks));
  Segment segment = Segment::create(size, env::bytes("TRIREME_SEGMENT_BYTES"), true);
  std::vector<LocalPeer> members;
  for (int rank = 0; rank < size; ++rank) members.push_back({rank, getpid(), ""});
  std::vector<std::shared_ptr<CommunicatorState>> states;
  for (int rank = 0; rank < size; ++rank) {
    CommunicatorParts parts;
    parts.rank = rank;
    parts.hosts.assign(static_cast<size_t>(size), 0);
    parts.host_names.assign(static_cast<size_t>(size), "this process");
    parts.local.segment = segment.share();
    parts.local.members = members;
    parts.local.me = rank;
    parts.local.access = env::flag("TRIREME_DIRECT_READ") ? PeerMemory::Access::same_process : PeerMemory::Access::regions_only;
    parts.options = with_defaults(options);
    states.push_back(std::make_shared<CommunicatorState>(std::move(parts)));
    states.back()->open();
  }
  return states;
}

}  // namespace trireme::ccl
