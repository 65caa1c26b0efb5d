#include "trireme/cpu/affinity.h"

#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <memory>
#include <set>
#include <string_view>

#include "trireme/base/error.h"
#include "trireme/base/log.h"
#include "trireme/cpu/cgroup.h"
#include "trireme/cpu/pinning.h"

namespace trireme::cpu {

namespace {

// What Linux can be built for (NR_CPUS), and so a bound on what a list may name.
constexpr int kMaxCpus = 8192;

// A cpu_set_t is too small for the largest machines: the kernel refuses a mask shorter than its own.
class CpuMask {
 public:
  CpuMask() : set_(CPU_ALLOC(kMaxCpus), [](cpu_set_t* set) { CPU_FREE(set); }) { CPU_ZERO_S(bytes(), get()); }
  cpu_set_t* get() { return set_.get(); }
  static size_t bytes() { return CPU_ALLOC_SIZE(kMaxCpus); }

 private:
  std::unique_ptr<cpu_set_t, void (*)(cpu_set_t*)> set_;
};

int parse_cpu(std::string_view number, const std::string& text) {
  int cpu = -1;
  auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), cpu);
  if (error != std::errc() || end != number.data() + number.size() || cpu < 0 || cpu >= kMaxCpus)
    throw InvalidArgument(str("CPU list '", text, "': expected auto, or numbers and ranges such as 3,4,7-9"));
  return cpu;
}

}  // namespace

std::vector<int> allowed_cpus(pid_t thread) {
  CpuMask mask;
  std::vector<int> cpus;
  if (sched_getaffinity(thread, mask.bytes(), mask.get()) != 0) throw IoError(errno_message("sched_getaffinity", errno));
  for (int cpu = 0; cpu < kMaxCpus; ++cpu)
    if (CPU_ISSET_S(cpu, mask.bytes(), mask.get())) cpus.push_back(cpu);
  return cpus;
}

// A quota of 1.5 cores counts as one: a second busy thread would spend half of its time throttled, and others wait for it.
int granted_cores(const std::vector<pid_t>& others) {
  std::vector<int> cpus = cpus_before_pinning();
  std::set<int> together(cpus.begin(), cpus.end());
  for (pid_t other : others) {
    try {
      cpus = allowed_cpus(other);
      together.insert(cpus.begin(), cpus.end());
    } catch (const IoError&) {  // it has ended
    }
  }
  int cores = static_cast<int>(together.size());
  if (auto quota = cgroup_quota(); quota && *quota < cores) cores = static_cast<int>(*quota);
  return std::max(cores, 1);
}

bool set_allowed_cpus(const std::vector<int>& cpus, pid_t thread) {
  CpuMask mask;
  for (int cpu : cpus)
    if (cpu >= 0 && cpu < kMaxCpus) CPU_SET_S(static_cast<size_t>(cpu), mask.bytes(), mask.get());
  return sched_setaffinity(thread, mask.bytes(), mask.get()) == 0;
}

bool pin_this_thread(int cpu) {
  if (set_allowed_cpus({cpu})) return true;
  log(LogLevel::warn, errno_message(str("cannot pin a thread to CPU ", cpu), errno));
  return false;
}

std::vector<int> parse_cpu_list(const std::string& text) {
  std::vector<int> cpus;
  if (text == "auto") return cpus;
  for (size_t begin = 0; begin <= text.size();) {
    size_t end = std::min(text.find(',', begin), text.size());
    std::string_view item = std::string_view(text).substr(begin, end - begin);
    size_t dash = item.find('-');
    int first = parse_cpu(item.substr(0, dash), text);
    int last = dash == std::string_view::npos ? first : parse_cpu(item.substr(dash + 1), text);
    if (last < first) throw InvalidArgument(str("CPU list '", text, "': the range ", item, " runs backwards"));
    for (int cpu = first; cpu <= last; ++cpu) cpus.push_back(cpu);
    begin = end + 1;
  }
  return cpus;
}

std::string format_cpu_list(const std::vector<int>& cpus) {
  std::string text;
  for (size_t begin = 0, end; begin < cpus.size(); begin = end) {
    for (end = begin + 1; end < cpus.size() && cpus[end] == cpus[end - 1] + 1;) ++end;
    text += str(text.empty() ? "" : ",", cpus[begin]);
    if (end - begin > 1) text += str("-", cpus[end - 1]);
  }
  return text;
}

}  // namespace trireme::cpu
