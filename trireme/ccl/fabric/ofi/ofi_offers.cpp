#include "trireme/ccl/fabric/ofi/ofi_offers.h"

#include <arpa/inet.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <tuple>

#include "trireme/base/error.h"

namespace trireme::ccl {
namespace {

// sockets is deprecated, udp (under ofi_rxd) loses connections under load, shared memory does not leave the host.
constexpr const char* kNeverChosen[] = {"sockets", "udp", "ofi_rxd", "shm", "sm2"};

bool names_part(const std::string& provider, const std::string& part) {
  return (";" + provider + ";").find(";" + part + ";") != std::string::npos;
}

bool is_worth_choosing(const std::string& provider) {
  return std::none_of(std::begin(kNeverChosen), std::end(kNeverChosen), [&](const char* part) { return names_part(provider, part); });
}

OfiLibrary::Info make_hints(const OfiLibrary& library, const std::string& provider) {
  OfiLibrary::Info hints = library.make_info();
  hints->caps = FI_MSG | FI_TAGGED;
  hints->mode = FI_CONTEXT | FI_CONTEXT2;
  hints->ep_attr->type = FI_EP_RDM;
  // A send that is complete must reach the peer without our further progress.
  hints->tx_attr->op_flags = FI_TRANSMIT_COMPLETE;
  hints->domain_attr->threading = FI_THREAD_DOMAIN;
  hints->domain_attr->control_progress = FI_PROGRESS_MANUAL;
  hints->domain_attr->data_progress = FI_PROGRESS_MANUAL;
  hints->domain_attr->av_type = FI_AV_TABLE;
  // What we can live with. Only LOCAL and ENDPOINT ask anything of us: the others are about remote access to memory.
  hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_ENDPOINT | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
  if (!provider.empty()) hints->fabric_attr->prov_name = ::strdup(provider.c_str());
  return hints;
}

// How good an interface is, best first.
enum Place { kWanted, kOther, kLinkLocal, kLoopback };

Place place_of(const fi_info& info, const std::string& wanted) {
  char text[INET6_ADDRSTRLEN] = {};
  if (!info.src_addr) return kOther;
  if (info.addr_format == FI_SOCKADDR_IN) {
    const in_addr& address = static_cast<const sockaddr_in*>(info.src_addr)->sin_addr;
    if (inet_ntop(AF_INET, &address, text, sizeof text) && wanted == text) return kWanted;
    return (ntohl(address.s_addr) >> 24) == IN_LOOPBACKNET ? kLoopback : kOther;
  }
  if (info.addr_format == FI_SOCKADDR_IN6) {
    const in6_addr& address = static_cast<const sockaddr_in6*>(info.src_addr)->sin6_addr;
    if (inet_ntop(AF_INET6, &address, text, sizeof text) && wanted == text) return kWanted;
    return IN6_IS_ADDR_LOOPBACK(&address) ? kLoopback : IN6_IS_ADDR_LINKLOCAL(&address) ? kLinkLocal : kOther;
  }
  return kOther;
}

// libfabric's list, as pointers in the order in which to offer them.
std::vector<fi_info*> in_order(fi_info* list, const std::string& address) {
  std::vector<fi_info*> infos;
  std::vector<std::string> providers;
  for (fi_info* info = list; info; info = info->next) {
    infos.push_back(info);
    std::string name = info->fabric_attr->prov_name;
    if (std::find(providers.begin(), providers.end(), name) == providers.end()) providers.push_back(name);
  }
  auto rank = [&](const fi_info* info) {
    auto provider = std::find(providers.begin(), providers.end(), info->fabric_attr->prov_name) - providers.begin();
    return std::tuple(is_rxm_over_sockets(info->fabric_attr->prov_name), provider, place_of(*info, address));
  };
  std::stable_sort(infos.begin(), infos.end(), [&](const fi_info* a, const fi_info* b) { return rank(a) < rank(b); });
  return infos;
}

}  // namespace

bool is_rxm_over_sockets(const std::string& provider) { return provider == "tcp;ofi_rxm" || provider == "net;ofi_rxm"; }

std::vector<OfiOffer> find_ofi_offers(const OfiLibrary& library, const std::string& provider, const std::string& address) {
  const char* chosen = std::getenv("FI_PROVIDER");
  bool named = !provider.empty() || (chosen && *chosen);
  OfiLibrary::Info hints = make_hints(library, provider);
  fi_info* found = nullptr;
  int error = library.getinfo(FI_VERSION(1, 17), nullptr, nullptr, 0, hints.get(), &found);
  OfiLibrary::Info list(found, library.freeinfo);
  if (error != 0 && error != -FI_ENODATA) throw Unsupported(str("libfabric: fi_getinfo: ", library.text_of(error)));

  std::vector<OfiOffer> offers;
  for (fi_info* info : in_order(list.get(), address)) {
    OfiOffer offer{info->fabric_attr->prov_name, info->addr_format, info->ep_attr->protocol, {library.dupinfo(info), library.freeinfo}};
    bool known = std::any_of(offers.begin(), offers.end(), [&](const OfiOffer& other) { return other.matches(offer); });
    bool wanted = !provider.empty() ? offer.provider == provider : named || is_worth_choosing(offer.provider);
    if (!known && wanted) offers.push_back(std::move(offer));
  }
  if (offers.empty()) {
    throw Unsupported(str("libfabric ", library.version_text(), " offers no provider of reliable tagged messages",
                          !provider.empty() ? str(" named ", provider) : named ? str(" with FI_PROVIDER=", chosen) : "",
                          "; `fi_info -t FI_EP_RDM -c FI_TAGGED` lists those of this host"));
  }
  return offers;
}

}  // namespace trireme::ccl
