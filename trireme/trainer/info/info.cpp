#include "trireme/trainer/info/info.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <map>
#include <set>
#include <sstream>

#include "trireme/base/env.h"
#include "trireme/base/error.h"
#include "trireme/ccl/bootstrap/control.h"
#include "trireme/ccl/bootstrap/pmi.h"
#include "trireme/ccl/fabric/ofi/ofi_lane.h"
#include "trireme/cpu/affinity.h"
#include "trireme/cpu/cgroup.h"
#include "trireme/cpu/features.h"
#include "trireme/cpu/isa.h"
#include "trireme/cpu/pinning.h"
#include "trireme/cpu/products.h"
#include "trireme/trainer/options/flags.h"

extern char** environ;

namespace trireme::trainer {
namespace {

using std::filesystem::path;

constexpr int kPlansShown = 16;

// Variables of others that change what a run does here.
constexpr const char* kOthers[] = {"OMP_NUM_THREADS",   "KMP_AFFINITY", "KMP_BLOCKTIME", "OMP_PROC_BIND", "OMP_PLACES",
                                   "GOMP_CPU_AFFINITY", "MKL_CBWR",     "LD_PRELOAD",    "FI_PROVIDER",   "I_MPI_PIN",
                                   "HF_ENDPOINT",       "HF_HOME",      "HF_HUB_OFFLINE"};

std::string gib(double bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f GiB", bytes / (1 << 30));
  return text;
}

std::string plural(size_t count, const std::string& what) { return str(count, " ", what, count == 1 ? "" : "s"); }

// "2 sockets x 24 cores x 2 hardware threads, 2 NUMA nodes"; where they are not alike, the sums.
std::string topology_text(const cpu::Topology& topology) {
  std::map<int, size_t> cores_of_socket;
  std::set<int> nodes;
  std::set<size_t> threads;
  size_t cpus = 0;
  for (const cpu::Core& core : topology.cores) {
    ++cores_of_socket[core.socket];
    nodes.insert(core.node);
    threads.insert(core.cpus.size());
    cpus += core.cpus.size();
  }
  std::set<size_t> cores;
  for (const auto& [socket, count] : cores_of_socket) cores.insert(count);
  const std::string node_text = plural(nodes.size(), "NUMA node");
  if (cores.size() != 1 || threads.size() != 1)
    return str(plural(cores_of_socket.size(), "socket"), ", ", plural(topology.cores.size(), "core"), ", ",
               plural(cpus, "hardware thread"), ", ", node_text);
  return str(plural(cores_of_socket.size(), "socket"), " x ", plural(*cores.begin(), "core"), " x ",
             plural(*threads.begin(), "hardware thread"), ", ", node_text);
}

std::string bf16_text(const cpu::Features& features) {
  const char* amx = !features.amx_bf16 ? "no AMX-BF16"
                    : features.amx_is_permitted
                        ? "AMX-BF16"
                        : "AMX-BF16, which the kernel does not let us use (Linux 5.16 or newer does)";
  return str(amx, features.avx512_bf16 ? ", AVX512-BF16" : ", no AVX512-BF16");
}

std::string isa_text() {
  const std::string detected(cpu::name_of(cpu::detected_isa())), used(cpu::name_of(cpu::isa()));
  return detected == used ? detected : str(used, ", capped by TRIREME_MAX_ISA; the CPU has ", detected);
}

std::string products_text() {
  const bool is_chosen = env::text("TRIREME_MATMUL") != "auto";
  return str(cpu::prefers_own_products() ? "trireme's" : "torch's", is_chosen ? ", by TRIREME_MATMUL" : ", as is best for this CPU");
}

Json cpu_section() {
  const cpu::Features features = cpu::read_features();
  return {{"model", features.model},
          {"topology", topology_text(cpu::read_topology())},
          {"kernels", isa_text()},
          {"fp32_products", products_text()},
          {"bf16", bf16_text(features)}};
}

Json grant_section() {
  const std::vector<int> mask = cpu::cpus_before_pinning();
  const cpu::CgroupLimits limits = cpu::cgroup_limits();
  Json section = {{"cores_granted", cpu::granted_cores()}, {"affinity_mask", cpu::format_cpu_list(mask)}};
  section["cpuset"] = limits.cpus ? cpu::format_cpu_list(*limits.cpus) : "no limit";
  section["cpu_quota"] = limits.quota ? str(*limits.quota, " cores") : "no limit";
  section["memory_limit"] = limits.memory_bytes ? gib(static_cast<double>(*limits.memory_bytes)) : "no limit";
  return section;
}

// The numbers of /proc/meminfo, in its units.
std::map<std::string, double> meminfo(const path& root) {
  std::map<std::string, double> values;
  std::ifstream file(root / "proc/meminfo");
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string name;
    double value = 0;
    if (words >> name >> value) values[name.substr(0, name.find(':'))] = value;
  }
  return values;
}

// "always [madvise] never": the one in brackets.
std::string transparent_huge_pages(const path& root) {
  std::ifstream file(root / "sys/kernel/mm/transparent_hugepage/enabled");
  for (std::string word; file >> word;)
    if (word.size() > 2 && word.front() == '[') return word.substr(1, word.size() - 2);
  return "not known";
}

// As the launcher has it, where nobody says otherwise.
Json plan_section(std::optional<int> wanted_ranks, std::optional<int> wanted_hosts) {
  const auto launcher = ccl::launcher_rank();
  const int ranks = wanted_ranks.value_or(launcher ? launcher->local_size : 1);
  const int hosts = wanted_hosts.value_or(launcher && !wanted_ranks ? std::max(1, launcher->size / ranks) : 1);
  std::vector<std::string> lines;
  for (int rank = 0; rank < std::min(ranks, kPlansShown); ++rank)
    lines.push_back(cpu::make_plan(cpu::observe(rank, ranks, ranks * hosts)).sentence);
  if (ranks > kPlansShown) lines.push_back(str("and so on, up to local rank ", ranks - 1));
  return {{"ranks_on_this_host", ranks}, {"ranks_in_all", ranks * hosts}, {"choice", lines}};
}

Json interfaces() {
  const std::vector<std::string> chosen = ccl::local_addresses();  // complains about a wrong TRIREME_IFACE
  std::vector<std::string> lines;
  for (const ccl::LocalInterface& interface : ccl::local_interfaces()) {
    const bool is_first = !chosen.empty() && interface.address == chosen.front();
    const bool is_offered = std::ranges::find(chosen, interface.address) != chosen.end();
    lines.push_back(str(interface.name, " ", interface.address,
                        is_first     ? ": tried first"
                        : is_offered ? ""
                                     : ": not used"));
  }
  return lines;
}

Json network_section() {
  Json section;
  section["interfaces"] = found_out(interfaces);
  section["between_hosts"] = found_out([]() -> Json { return env::text("TRIREME_FABRIC") == "ofi" ? "libfabric" : "TCP"; });
  section["libfabric"] = found_out([]() -> Json { return ccl::ofi_providers(); });
  section["within_a_host"] = found_out([]() -> Json {
    if (!env::flag("TRIREME_SHARED_MEMORY")) return "as between hosts (TRIREME_SHARED_MEMORY=0)";
    if (!env::flag("TRIREME_DIRECT_READ")) return "shared memory; direct reads are turned off (TRIREME_DIRECT_READ=0)";
    return direct_reads_are_permitted()
               ? "shared memory, and reads of peers' memory (process_vm_readv is permitted)"
               : "shared memory alone: process_vm_readv is not permitted; a container needs CAP_SYS_PTRACE, or a "
                 "seccomp profile that allows it";
  });
  return section;
}

Json job_section() {
  Json section;
  char host[256] = {};
  section["host"] = ::gethostname(host, sizeof host - 1) == 0 ? host : "not known";
  section["launcher"] = found_out([]() -> Json {
    const auto launcher = ccl::launcher_rank();
    if (!launcher) return "none: one process";
    return str(launcher->launcher, ": rank ", launcher->rank, " of ", launcher->size, ", on this host ",
               launcher->local_rank, " of ", launcher->local_size);
  });
  return section;
}

std::string value_text(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_boolean()) return value.get<bool>() ? "yes" : "no";
  return value.dump();
}

std::string words_of(std::string name) {
  std::ranges::replace(name, '_', ' ');
  return name;
}

void append_line(std::string& out, const std::string& name, const std::string& value, size_t name_width, size_t width) {
  std::string left = "  " + name;
  left.resize(name_width + 4, ' ');
  out += left + wrapped(value, width - name_width - 4, name_width + 4) + "\n";
}

}  // namespace

Json found_out(const std::function<Json()>& find) {
  try {
    return find();
  } catch (const Error& error) {
    return str("not known: ", error.what());
  }
}

Json memory_section(const path& root) {
  std::map<std::string, double> values = meminfo(root);
  if (!values.contains("MemTotal")) return {{"total", "not known: /proc/meminfo cannot be read"}};
  const double free_pages = values["HugePages_Free"], pages = values["HugePages_Total"];
  return {{"total", gib(values["MemTotal"] * 1024)},
          {"available", gib(values["MemAvailable"] * 1024)},
          {"transparent_huge_pages", transparent_huge_pages(root)},
          {"reserved_huge_pages",
           pages > 0 ? str(free_pages, " of ", pages, " free, ", values["Hugepagesize"] / 1024, " MiB each") : "none"}};
}

Json settings_section() {
  std::map<std::string, std::string> found;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const std::string name = text.substr(0, text.find('=')), value = text.substr(std::min(text.find('=') + 1, text.size()));
    const bool ours = name.starts_with("TRIREME_") || name.starts_with("CCL_");
    if (!ours && std::ranges::find(kOthers, name) == std::end(kOthers)) continue;
    const bool known = !ours || std::ranges::find(env::table(), name, &env::Variable::name) != env::table().end();
    found[name] = known ? value : str(value, " (without effect: there is no such variable)");
  }
  if (found.empty()) return {{"variables", "none is set"}};
  Json section;
  for (const auto& [name, value] : found) section[name] = value;
  return section;
}

Json collect_info(std::optional<int> ranks_on_host, std::optional<int> hosts) {
  Json info;
  info["CPU"] = found_out(cpu_section);
  info["granted"] = found_out(grant_section);
  info["memory"] = found_out([] { return memory_section(); });
  info["plan"] = found_out([&] { return plan_section(ranks_on_host, hosts); });
  info["network"] = network_section();
  info["job"] = job_section();
  info["settings"] = settings_section();
  return info;
}

std::string info_text(const Json& info, size_t width) {
  std::string out;
  for (const auto& [title, section] : info.items()) {
    out += (out.empty() ? "" : "\n") + title + "\n";
    if (!section.is_object()) {
      append_line(out, "", value_text(section), 0, width);
      continue;
    }
    size_t name_width = 0;
    for (const auto& [name, value] : section.items()) name_width = std::max(name_width, name.size());
    const bool as_is = title == "settings";  // names of variables
    for (const auto& [name, value] : section.items()) {
      const std::string shown = as_is ? name : words_of(name);
      if (!value.is_array())
        append_line(out, shown, value_text(value), name_width, width);
      else if (value.empty())
        append_line(out, shown, "none", name_width, width);
      else
        for (size_t i = 0; i < value.size(); ++i)
          append_line(out, i == 0 ? shown : "", value_text(value[i]), name_width, width);
    }
  }
  return out;
}

}  // namespace trireme::trainer
