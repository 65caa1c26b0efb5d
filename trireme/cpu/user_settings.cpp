#include "trireme/cpu/user_settings.h"

#include <dlfcn.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <string_view>

#include "trireme/base/env.h"
#include "trireme/cpu/affinity.h"

namespace trireme::cpu {

namespace {

using std::filesystem::path;

constexpr const char* kTorchrunMark = "TORCHELASTIC_RUN_ID";

// How far up a launcher may be: a worker is torchrun's child, or a wrapper's.
constexpr int kMaxAncestors = 16;

std::string value_of(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

// Unset, or said not to place anything. As OpenMP runtimes read it, case does not matter.
bool places(const char* name) {
  std::string value = value_of(name);
  std::ranges::transform(value, value.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  constexpr std::string_view kNot[] = {"", "0", "no", "off", "false", "none", "disable", "disabled"};
  return std::ranges::find(kNot, value) == std::end(kNot);
}

// `accelerate launch` gives everybody a KMP_AFFINITY. torch's own OpenMP runtime does not read it: then nobody places threads.
bool comes_from_accelerate(std::string_view name) {
  return name == "KMP_AFFINITY" && value_of("KMP_AFFINITY") == "granularity=fine,compact,1,0" &&
         !value_of("ACCELERATE_MIXED_PRECISION").empty() && ::dlsym(RTLD_DEFAULT, "kmp_set_blocktime") == nullptr;
}

std::string placing_variable() {
  for (const char* name : {"KMP_AFFINITY", "KMP_HW_SUBSET", "GOMP_CPU_AFFINITY", "OMP_PLACES", "OMP_PROC_BIND"})
    if (places(name) && !comes_from_accelerate(name)) return name;
  // Intel MPI's launcher and library place the process; I_MPI_PIN=0 tells them not to.
  bool intel_pins = value_of("I_MPI_PIN").empty() || places("I_MPI_PIN");
  for (const char* name : {"I_MPI_PIN_DOMAIN", "I_MPI_PIN_PROCESSOR_LIST", "I_MPI_PIN_PROCS"})
    if (intel_pins && places(name)) return name;
  return "";
}

// "8", or "8,2" for nested regions: the outermost counts. What OpenMP would not take counts as unset.
std::optional<int> omp_num_threads() {
  std::string text = value_of("OMP_NUM_THREADS");
  const char* begin = text.data() + std::min(text.find_first_not_of(' '), text.size());
  int threads = 0;
  auto [end, error] = std::from_chars(begin, text.data() + text.size(), threads);
  if (error != std::errc() || threads < 1) return std::nullopt;
  return threads;
}

// The environment with which a process was started, as NAME=value strings; what it has set since is not in it.
std::optional<std::vector<std::string>> environment_of(const path& process) {
  std::ifstream file(process / "environ");
  if (!file) return std::nullopt;
  std::vector<std::string> entries;
  for (std::string entry; std::getline(file, entry, '\0');) entries.push_back(entry);
  return entries;
}

bool sets(const std::vector<std::string>& environment, const std::string& name) {
  return std::ranges::any_of(environment, [&](const std::string& entry) { return entry.starts_with(name + "="); });
}

int parent_of(const path& process) {
  std::ifstream file(process / "status");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("PPid:")) return std::atoi(line.c_str() + 5);
  return 0;
}

// Upwards to the first process that does not carry torchrun's mark: that is torchrun.
bool user_told_torchrun(const path& root) {
  path process = root / "proc/self";
  for (int up = 0; up < kMaxAncestors; ++up) {
    int parent = parent_of(process);
    if (parent <= 0) return false;
    process = root / "proc" / std::to_string(parent);
    auto environment = environment_of(process);
    if (!environment) return false;
    if (!sets(*environment, kTorchrunMark)) return sets(*environment, "OMP_NUM_THREADS");
  }
  return false;
}

}  // namespace

UserSettings read_user_settings(const path& root) {
  UserSettings settings;
  settings.pin = env::flag("TRIREME_PIN");
  settings.threads = omp_num_threads();
  settings.torchrun_threads = settings.threads == 1 && std::getenv(kTorchrunMark) != nullptr && !user_told_torchrun(root);
  if (settings.torchrun_threads) settings.threads.reset();
  settings.placed_by = placing_variable();
  settings.workers = env::flag("CCL_WORKER_OFFLOAD") ? static_cast<int>(env::integer("CCL_WORKER_COUNT")) : 0;
  settings.worker_affinity = parse_cpu_list(env::text("CCL_WORKER_AFFINITY"));
  return settings;
}

}  // namespace trireme::cpu
