// PMI-1, spoken as text over the descriptor PMI_FD (or the TCP address PMI_PORT of `mpiexec -pmi-port`) that a hydra mpirun
// gives its processes: no libmpi is needed. Never touched when a store was given, nor when MPI is in the process (it owns
// the channel then).
#pragma once

#include <memory>
#include <optional>

#include "trireme/ccl/bootstrap/store.h"

namespace trireme::ccl {

struct Pmi {
  int rank = 0;
  int size = 1;
  // PMI's keys become visible at a barrier: set() puts and commits, try_get() of a key not yet visible takes part in the
  // barrier.
  std::shared_ptr<Store> store;
};

// Nothing when this process was not started by a PMI-1 launcher, or when MPI is initialised in it.
std::optional<Pmi> connect_pmi();

// For a process that ends because its job has failed: it will leave the channel without PMI's finalize. mpirun takes that for
// a crash and ends the other processes; after a finalize it waits for all of them, for ever if one is on a host that is gone.
// False where this process has no channel.
bool forgo_pmi_finalize();

// Rank and size as the launcher's variables have them (hydra, Open MPI, torchrun, Slurm), nothing when there are none.
struct LauncherRank {
  int rank = 0, size = 1, local_rank = 0, local_size = 1;
  const char* launcher = "";
};
std::optional<LauncherRank> launcher_rank();

}  // namespace trireme::ccl
