#include "trireme/ccl/fabric/ofi/ofi_library.h"

#include <dlfcn.h>

#include "trireme/base/error.h"

namespace trireme::ccl {
namespace {

constexpr uint32_t kOldestVersion = FI_VERSION(1, 17);

template <class Function>
void find(void* library, const std::string& library_name, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (!function) throw Unsupported(str(library_name, " has no ", name, ": it is not libfabric"));
}

}  // namespace

OfiLibrary::OfiLibrary(const std::string& name) {
  void* library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
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
