// libfabric as the carrier of large messages between hosts: verbs, EFA, psm3, or `net` and `tcp;ofi_rxm` where there is none of those.
//
// The protocol stays on the TCP links: small messages, offers and acceptances, and with them matching, mismatches and who is
// alive. An accepted message then travels as one tagged libfabric message (several, where the provider's are short) whose tag
// holds the receiver's id for it. Its receive is posted before the acceptance goes out, so it is never unexpected.
//
// libfabric knows no proof of identity: unlike the links, a lane trusts the network it runs on.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "trireme/ccl/bootstrap/control.h"
#include "trireme/ccl/fabric/link.h"

namespace trireme::ccl {

// Collective over the control star. Loads libfabric (FI_PROVIDER chooses among its providers) and takes the first provider that works on every
// rank. Throws Unsupported, on every rank, when one has no libfabric or when there is no such provider.
std::unique_ptr<BulkLane> connect_ofi_lane(Control& control, const std::vector<int>& hosts, Deadline deadline);

// The providers that it would try on this host, best first. Loads libfabric, which stays loaded; throws Unsupported as above.
std::vector<std::string> ofi_providers();

namespace detail {

// What tests choose for themselves.
struct OfiOptions {
  std::string library = "libfabric.so.1";
  std::string provider = "";                   // empty: FI_PROVIDER's, or the best
  size_t max_message_bytes = size_t{1} << 30;  // longer ones are split: within the int that some providers count in
  bool register_memory = false;                // also where the provider does not ask for it
};
std::unique_ptr<BulkLane> connect_ofi_lane(Control& control, const std::vector<int>& hosts, Deadline deadline, const OfiOptions& options);

}  // namespace detail
}  // namespace trireme::ccl
