// Connections between the ranks of different hosts: proved, several per pair where asked.
#pragma once

#include <memory>
#include <vector>

#include "trireme/ccl/bootstrap/control.h"
#include "trireme/ccl/engine/stream.h"

namespace trireme::ccl {

// Collective over the control star: everybody listens, tells the others where, and the higher rank of each pair connects.
// streams[r] holds the connections to rank r, empty for ranks of this host. `hosts[r]` is rank r's host.
std::vector<std::vector<std::unique_ptr<Stream>>> connect_tcp_mesh(Control& control, const std::vector<int>& hosts,
                                                                   Deadline deadline);

}  // namespace trireme::ccl
