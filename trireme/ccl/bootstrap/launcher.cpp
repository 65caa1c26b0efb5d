// Rank and size from the variables of whoever started the process.
#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <string>
#include <string_view>

#include "trireme/base/env.h"
#include "trireme/base/error.h"
#include "trireme/ccl/bootstrap/pmi.h"

namespace trireme::ccl {

namespace {

struct Launcher {
  const char* name;
  const char* setting;  // its name in CCL_PROCESS_LAUNCHER
  const char* rank;
  const char* size;
  const char* local_rank;
  const char* local_size;
  bool needs_local_rank = false;  // only with local_rank set is it this one
};

// The innermost comes first: torchrun under mpirun or srun leaves the outer one's variables in place, and they are the same
// for all its workers. It is known by LOCAL_RANK: scripts for other launchers set RANK and WORLD_SIZE by hand, and a
// PyTorchJob numbers its pods with them. So is hydra, as long as there is Slurm: its PMI2 plugin sets PMI_RANK and PMI_SIZE too.
constexpr std::array kLaunchers = {
    Launcher{"torchrun", "torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", true},
    Launcher{"hydra", "hydra", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", true},
    Launcher{"Open MPI", "pmix", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
             "OMPI_COMM_WORLD_LOCAL_SIZE"},
    // By the variables of a step, which srun sets: those of a job are in a batch script too, where one process runs.
    Launcher{"Slurm", "pmix", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE"},
    Launcher{"hydra", "hydra", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
};

// Slurm's number of tasks on each node may read "2(x3),1"; of such a list the first node's counts, for want of better.
int number(const char* name, int absent, bool may_be_list = false) {
  const char* text = std::getenv(name);
  if (text == nullptr) return absent;
  const std::string_view view = text;
  int value = -1;
  auto [stop, error] = std::from_chars(view.data(), view.data() + view.size(), value);
  const std::string_view rest(stop, view.data() + view.size());
  const bool is_list = may_be_list && (rest.starts_with('(') || rest.starts_with(','));
  if (error != std::errc() || !(rest.empty() || is_list) || value < 0) {
    throw InvalidArgument(str(name, " is '", text, "'; it must be a whole number"));
  }
  return value;
}

bool started_by(const Launcher& launcher) {
  return std::getenv(launcher.rank) != nullptr && std::getenv(launcher.size) != nullptr &&
         (!launcher.needs_local_rank || std::getenv(launcher.local_rank) != nullptr);
}

}  // namespace

std::optional<LauncherRank> launcher_rank() {
  // Unset, whoever left its variables counts; set, only the one that is named.
  const std::string wanted = env::is_set("CCL_PROCESS_LAUNCHER") ? env::text("CCL_PROCESS_LAUNCHER") : "";
  for (const Launcher& launcher : kLaunchers) {
    if (!wanted.empty() && wanted != launcher.setting) continue;
    if (!started_by(launcher)) continue;
    LauncherRank found{number(launcher.rank, 0), number(launcher.size, 1), number(launcher.local_rank, 0),
                       number(launcher.local_size, 1, true), launcher.name};
    if (found.rank >= found.size) {
      throw InvalidArgument(str(launcher.rank, "=", found.rank, " and ", launcher.size, "=", found.size, " of ",
                                launcher.name, " do not fit together: ranks go from 0 to size - 1"));
    }
    // Not every launcher says how many ranks share the host.
    found.local_size = std::max(found.local_size, found.local_rank + 1);
    return found;
  }
  return std::nullopt;
}

}  // namespace trireme::ccl
