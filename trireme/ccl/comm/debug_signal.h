// On TRIREME_DEBUG_SIGNAL (SIGUSR1 unless told otherwise) a process prints, for each of its communicators, what it waits for and from
// whom: `kill -USR1` on every rank of a job that hangs shows which one is missing. A program's own handler is left alone.
#pragma once

#include <memory>

namespace trireme::ccl {

class CommunicatorState;

// Installs the handler at the first call. Forgets a communicator when it is gone.
void report_on_signal(const std::shared_ptr<CommunicatorState>& communicator);

}  // namespace trireme::ccl
