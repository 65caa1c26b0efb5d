// Bringing a communicator up: the ranks meet, prove themselves, share memory within hosts and connect between them.
#pragma once

#include <memory>

#include "trireme/ccl/bootstrap/control.h"
#include "trireme/ccl/comm/state.h"

namespace trireme::ccl {

// Collective over the star. Throws what kept it from coming up; every rank then throws.
std::shared_ptr<CommunicatorState> build_communicator(std::unique_ptr<Control> control, const CommunicatorOptions& options,
                                                      Deadline deadline);
// All ranks as threads of this process.
std::vector<std::shared_ptr<CommunicatorState>> build_thread_communicators(int size, const CommunicatorOptions& options);

// When the ranks must have met.
Deadline connect_deadline(const CommunicatorOptions& options);

}  // namespace trireme::ccl
