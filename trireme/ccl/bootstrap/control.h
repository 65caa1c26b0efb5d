// How the ranks of a communicator find each other and prove that they belong together.
//
// Rank 0 listens on the interface that reaches the others and leaves an invitation (address, job id, secret) in the store;
// the others connect to it. Both sides prove the secret by HMAC over fresh nonces, so a replay or a stranger is refused
// without harm, and a stale invitation of an earlier incarnation never matches. What follows travels over these live
// connections: a star through rank 0.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "trireme/base/deadline.h"
#include "trireme/base/fd.h"
#include "trireme/ccl/bootstrap/store.h"

namespace trireme::ccl {

using Secret = std::array<uint8_t, 32>;
using JobId = std::array<uint8_t, 16>;

// What a connecting rank says of itself; proved by the HMAC.
struct Claim {
  JobId job{};
  uint32_t size = 0;
  uint32_t rank = 0;
  uint32_t stream = 0;  // 0 for control; data connections number theirs
};

// Accepts connections and lets in those that prove the secret. Strangers, slow or half-open connections, wrong secrets and
// huge lengths cost one descriptor each until their own short deadline, at most 256 at a time (the oldest is dropped), and
// never block an honest rank. One thread at a time.
class AuthListener {
 public:
  // Listens on every address of the host, or on `address` alone when it is not empty; port 0 takes a free one.
  AuthListener(const JobId& job, const Secret& secret, uint32_t size, const std::string& address = "", uint16_t port = 0);
  ~AuthListener();
  uint16_t port() const;
  // Readable when accept() would get on, for a caller that polls other descriptors too. It must call accept() once a second
  // all the same: slow strangers are dropped there.
  int descriptor() const;
  // The next proved connection, non-blocking and tuned for light traffic (socket.h), or nothing when the deadline passes.
  // Claims with another job, size or a rank >= size are refused.
  std::optional<std::pair<UniqueFd, Claim>> accept(Deadline deadline);
  // Tells a proved claimant that its rank is taken; it sees an IoError with this reason.
  static void refuse(UniqueFd connection, const std::string& reason);
  // Lets it in. To a claimant that has gone in the meantime nothing happens: the connection shows it.
  static void confirm(int connection);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// Connects to one of `addresses`, tried in turn and again until the deadline (a listener under attack may drop an honest
// rank), and proves `claim`. Throws IoError when a listener that has proved itself refuses, else Timeout; both name
// addresses and causes.
UniqueFd connect_proved(const std::vector<std::string>& addresses, uint16_t port, const Secret& secret, const Claim& claim,
                        Deadline deadline);

// Every interface that is up and has carrier, with an address that another host can use; in the order of local_addresses().
struct LocalInterface {
  std::string name, address;
};
std::vector<LocalInterface> local_interfaces();

// The addresses under which this host can be reached, best first: the interface named by TRIREME_IFACE or CCL_KVS_IFACE,
// else every interface that is up and has carrier, loopback last. Numeric, IPv4 and global IPv6.
std::vector<std::string> local_addresses();

// What TRIREME_IFACE or CCL_KVS_IFACE says, "" when nothing.
std::string named_interface();

// "eth0 10.77.0.1" for an address of this host, the address alone where no interface that is up has it.
std::string with_interface_name(const std::string& address);

// Owns the star's connections. One thread at a time. Blocks up to the deadline. After an exception it is of no further use.
class Control {
 public:
  // What rank 0 hands to the others, as at most 512 bytes; and the half of it that stays with rank 0.
  class Invitation;

  // Collective. Goes through the store: rank 0 sets `key`, the others wait for it and try again with a newer value when the
  // one they found leads nowhere (a key of an earlier incarnation).
  static std::unique_ptr<Control> meet(int size, int rank, Store& store, const std::string& key, Deadline deadline);

  // The same without a store: rank 0 makes an invitation, passes its text on by other means, then serves it.
  static std::shared_ptr<Invitation> invite(int size);
  static std::string text_of(const Invitation& invitation);
  static std::unique_ptr<Control> serve(std::shared_ptr<Invitation> invitation, Deadline deadline);
  static std::unique_ptr<Control> join(int size, int rank, const std::string& invitation_text, Deadline deadline);

  ~Control();
  int rank() const;
  int size() const;
  const JobId& job() const;
  const Secret& secret() const;
  // This rank's own address as seen by the others (rank 0: the one in the invitation that worked; others: the local end of
  // their connection).
  std::string my_address() const;

  // Every rank's bytes, in rank order. Collective. At most 64 KiB each. Throws Timeout naming the ranks that did not come,
  // PeerLost for one that closed.
  std::vector<std::string> allgather(const std::string& mine, Deadline deadline);

  // The connection to a rank: rank 0 has one to each other rank, they have one to rank 0; -1 where there is none. For
  // watching and for the communicator's notices; Control itself sends nothing after the last allgather.
  int connection_to(int rank) const;

 private:
  class Impl;
  class Host;
  class Guest;
  explicit Control(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace trireme::ccl
