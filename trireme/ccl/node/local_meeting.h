// How the ranks of a communicator find out which of them share a host, and set up what they share. Same host is proved, not guessed: a
// descriptor handed over a UNIX socket must arrive and show the job's nonce; direct reads are used only if a nonce in the peer's
// memory reads right. Pods and namespaces share a kernel, but neither pids nor sockets.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "trireme/ccl/bootstrap/control.h"
#include "trireme/ccl/node/peer_memory.h"
#include "trireme/ccl/node/segment.h"

namespace trireme::ccl {

struct LocalGroup {
  Segment segment;
  std::vector<LocalPeer> members;  // by local rank, this rank included
  int me = 0;
  LocalSocket socket;
  PeerMemory::Access access = PeerMemory::Access::regions_only;
  std::vector<ProcessFd> event_fds;  // by local rank
};

struct Meeting {
  LocalGroup local;
  std::vector<int> hosts;               // by global rank, numbered in order of lowest rank
  std::vector<std::string> host_names;  // by global rank, for messages
};

// Collective over the control star. `label` sets ranks apart that would otherwise share memory.
Meeting meet_locally(Control& control, const std::string& label, Deadline deadline);

}  // namespace trireme::ccl
