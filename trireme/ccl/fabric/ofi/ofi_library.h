// libfabric, loaded at run time: its few exported functions. All others are inline in its headers and go through tables that the
// library's objects carry.
#pragma once

#include <rdma/fabric.h>

#include <memory>
#include <string>

namespace trireme::ccl {

// Function pointers; copies are free, threads may share it. The library stays loaded to the end of the process: it keeps threads and
// exit handlers of its own.
//
// The newest version of each symbol is taken, which may know a longer fi_info than our headers do. That is safe because every such
// struct is made by the library (fi_dupinfo) and its fields are only ever appended to.
struct OfiLibrary {
  using Info = std::unique_ptr<fi_info, decltype(&::fi_freeinfo)>;  // a list of them

  // Throws Unsupported when there is no such library, or only one older than 1.17.
  explicit OfiLibrary(const std::string& name);

  Info make_info() const { return {dupinfo(nullptr), freeinfo}; }
  // "Connection refused" for -FI_ECONNREFUSED or FI_ECONNREFUSED.
  std::string text_of(long error) const { return strerror(static_cast<int>(error < 0 ? -error : error)); }
  std::string version_text() const;

  decltype(&::fi_getinfo) getinfo = nullptr;
  decltype(&::fi_freeinfo) freeinfo = nullptr;
  decltype(&::fi_dupinfo) dupinfo = nullptr;
  decltype(&::fi_fabric) fabric = nullptr;
  decltype(&::fi_strerror) strerror = nullptr;
  decltype(&::fi_version) version = nullptr;
};

}  // namespace trireme::ccl
