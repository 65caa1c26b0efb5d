// The addresses under which this host can be reached.
#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <cerrno>
#include <memory>
#include <set>

#include "trireme/base/env.h"
#include "trireme/base/error.h"
#include "trireme/ccl/bootstrap/control.h"

namespace trireme::ccl {

namespace {

using InterfaceList = std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)>;

InterfaceList list_interfaces() {
  ifaddrs* head = nullptr;
  if (::getifaddrs(&head) != 0) throw IoError(errno_message("getifaddrs", errno));
  return InterfaceList(head, &::freeifaddrs);
}

// Numeric, or "" for what another host cannot use: link-local IPv6 has a meaning on one link only.
std::string address_of(const ifaddrs& interface) {
  char text[INET6_ADDRSTRLEN] = "";
  if (interface.ifa_addr->sa_family == AF_INET) {
    ::inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(interface.ifa_addr)->sin_addr, text, sizeof text);
  } else if (interface.ifa_addr->sa_family == AF_INET6) {
    const in6_addr& v6 = reinterpret_cast<const sockaddr_in6*>(interface.ifa_addr)->sin6_addr;
    if (!IN6_IS_ADDR_LINKLOCAL(&v6)) ::inet_ntop(AF_INET6, &v6, text, sizeof text);
  }
  return text;
}

[[noreturn]] void throw_no_such_interface(const std::string& wanted, const std::vector<LocalInterface>& all) {
  std::set<std::string> seen;
  for (const LocalInterface& interface : all) seen.insert(interface.name);
  std::string names;
  for (const std::string& name : seen) names += (names.empty() ? "" : ", ") + name;
  throw InvalidArgument(str("TRIREME_IFACE or CCL_KVS_IFACE names '", wanted,
                            "', which is neither an interface that is up nor an address of one; this host has ", names));
}

}  // namespace

std::string named_interface() {
  std::string name = env::text("TRIREME_IFACE");
  return name.empty() ? env::text("CCL_KVS_IFACE") : name;
}

std::vector<LocalInterface> local_interfaces() {
  // Most networks of clusters are IPv4, and IPv6 addresses are often configured but not routed: hence this order.
  std::vector<LocalInterface> v4, v6, loopback;
  const InterfaceList interfaces = list_interfaces();
  for (const ifaddrs* i = interfaces.get(); i != nullptr; i = i->ifa_next) {
    if (i->ifa_addr == nullptr || (i->ifa_flags & IFF_UP) == 0 || (i->ifa_flags & IFF_RUNNING) == 0) continue;
    const std::string address = address_of(*i);
    if (address.empty()) continue;
    auto& list = (i->ifa_flags & IFF_LOOPBACK) != 0 ? loopback : i->ifa_addr->sa_family == AF_INET ? v4 : v6;
    list.push_back({i->ifa_name, address});
  }
  v4.insert(v4.end(), v6.begin(), v6.end());
  v4.insert(v4.end(), loopback.begin(), loopback.end());
  return v4;
}

std::vector<std::string> local_addresses() {
  const std::string wanted = named_interface();
  const std::vector<LocalInterface> all = local_interfaces();
  std::vector<std::string> addresses;
  for (const LocalInterface& interface : all)
    if (wanted.empty() || wanted == interface.name || wanted == interface.address) addresses.push_back(interface.address);
  if (addresses.empty() && !wanted.empty()) throw_no_such_interface(wanted, all);
  return addresses;
}

std::string with_interface_name(const std::string& address) {
  for (const LocalInterface& interface : local_interfaces())
    if (interface.address == address) return str(interface.name, " ", address);
  return address;
}

}  // namespace trireme::ccl
