// What the user has said about threads and cores, in the environment.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace trireme::cpu {

struct UserSettings {
  bool pin = true;                   // TRIREME_PIN
  std::optional<int> threads;        // OMP_NUM_THREADS, unless it is torchrun's own
  bool torchrun_threads = false;     // OMP_NUM_THREADS=1 is torchrun's own, and does not count
  std::string placed_by;             // a variable with which the user places threads: "KMP_AFFINITY"; empty: there is none
  int workers = 1;                   // CCL_WORKER_COUNT, 0 with CCL_WORKER_OFFLOAD=0
  std::vector<int> worker_affinity;  // CCL_WORKER_AFFINITY; empty: auto
};

// torchrun sets OMP_NUM_THREADS=1 where it is not set and starts more than one process. To tell it from a user's 1, torchrun's own
// environment is read from /proc below `root`; where that cannot be read, it counts as torchrun's.
UserSettings read_user_settings(const std::filesystem::path& root = "/");

}  // namespace trireme::cpu
