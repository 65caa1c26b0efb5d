#include "trireme/ccl/fabric/ofi/ofi_library.h"

#include <dlfcn.h>
#include <signal.h>

#include <array>
#include <mutex>

#include "trireme/base/error.h"

namespace trireme::ccl {
namespace {

constexpr uint32_t kOldestVersion = FI_VERSION(1, 17);

// While libpsm and libpsm2, which Debian's libfabric links, are loaded, they take over SIGINT, SIGTERM, SIGSEGV and others (to print a
// backtrace). Those are the program's, or Python's.
class SignalHandlersKept {
 public:
  SignalHandlersKept() {
    for (int signal = 1; signal < kSignals; ++signal) known_[signal] = sigaction(signal, nullptr, &before_[signal]) == 0;
  }
  ~SignalHandlersKept() {
    for (int signal = 1; signal < kSignals; ++signal) {
      struct sigaction now {};
      if (!known_[signal] || sigaction(signal, nullptr, &now) != 0) continue;
      // sa_handler and sa_sigaction share their place.
      if (now.sa_handler != before_[signal].sa_handler) sigaction(signal, &before_[signal], nullptr);
    }
  }

 private:
  static constexpr int kSignals = 32;
  std::array<bool, kSignals> known_{};
  std::array<struct sigaction, kSignals> before_{};
};

void* load(const std::string& name) {
  static std::mutex one_at_a_time;  // or a second thread would keep what the first one's loading has installed
  std::lock_guard lock(one_at_a_time);
  SignalHandlersKept kept;
  return dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
}

template <class Function>
void find(void* library, const std::string& library_name, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (!function) throw Unsupported(str(library_name, " has no ", name, ": it is not libfabric"));
}

}  // namespace

OfiLibrary::OfiLibrary(const std::string& name) {
  void* library = load(name);
  if (!library) {
    const char* reason = dlerror();
    throw Unsupported(str("libfabric could not be loaded (", reason ? reason : name.c_str(), "); install it (on Debian: libfabric1)"));
  }
  find(library, name, "fi_getinfo", getinfo);
  find(library, name, "fi_freeinfo", freeinfo);
  find(library, name, "fi_dupinfo", dupinfo);
  find(library, name, "fi_fabric", fabric);
  find(library, name, "fi_strerror", strerror);
  find(library, name, "fi_version", version);
  if (FI_VERSION_LT(version(), kOldestVersion)) throw Unsupported(str("libfabric here is ", version_text(), "; 1.17 or later is needed"));
}

std::string OfiLibrary::version_text() const { return str(FI_MAJOR(version()), ".", FI_MINOR(version())); }

}  // namespace trireme::ccl
