// Which of libfabric's providers could carry our messages, best first.
#pragma once

#include <string>
#include <vector>

#include "trireme/ccl/fabric/ofi/ofi_library.h"

namespace trireme::ccl {

// What two ranks must have in common to understand each other.
struct OfiOffer {
  std::string provider;
  uint32_t address_format = 0;
  uint32_t protocol = 0;
  OfiLibrary::Info info{nullptr, nullptr};  // this rank's: one element

  bool matches(const OfiOffer& other) const {
    return provider == other.provider && address_format == other.address_format && protocol == other.protocol;
  }
};

// ofi_rxm as a layer above a provider that moves bytes by sockets.
bool is_rxm_over_sockets(const std::string& provider);

// In libfabric's order of providers, but ofi_rxm over sockets last: it is slower than the others, takes 90 MB and does not survive being
// closed in the middle. Of the interfaces of one provider that with `address` (numeric, may be none of them) comes first,
// loopback last. One offer per kind. `provider` narrows them to that one; else, unless FI_PROVIDER is set, those are left out that are deprecated,
// unreliable or cannot leave the host. Throws Unsupported when nothing is left.
std::vector<OfiOffer> find_ofi_offers(const OfiLibrary& library, const std::string& provider, const std::string& address);

}  // namespace trireme::ccl
