#include "trireme/ccl/fabric/tcp/tcp_mesh.h"

#include <algorithm>

#include "trireme/base/env.h"
#include "trireme/base/error.h"
#include "trireme/ccl/bootstrap/socket.h"
#include "trireme/ccl/bootstrap/wire.h"
#include "trireme/ccl/fabric/tcp/tcp_stream.h"

namespace trireme::ccl {
namespace {

// Where a rank's data connections are accepted.
struct Endpoint {
  std::vector<std::string> addresses;
  uint16_t port = 0;
  uint32_t streams = 1;

  std::string encode() const {
    wire::Writer writer;
    writer.integer(port);
    writer.integer(streams);
    writer.integer(static_cast<uint32_t>(addresses.size()));
    for (const std::string& address : addresses) writer.string(address);
    return writer.take();
  }
  static Endpoint decode(const std::string& bytes) {
    wire::Reader reader(bytes);
    Endpoint endpoint;
    endpoint.port = reader.integer<uint16_t>();
    endpoint.streams = reader.integer<uint32_t>();
    uint32_t count = reader.integer<uint32_t>();
    for (uint32_t i = 0; i < count; ++i) endpoint.addresses.emplace_back(reader.string(64));
    return endpoint;
  }
};

// The address by which rank 0 was reached comes first: it is known to work. Where the user has named an interface, it counts
// alone.
std::vector<std::string> reachable_addresses(const Control& control) {
  std::vector<std::string> addresses = local_addresses();
  auto first = std::ranges::find(addresses, control.my_address());
  if (first != addresses.end())
    std::rotate(addresses.begin(), first, first + 1);
  else if (named_interface().empty())
    addresses.insert(addresses.begin(), control.my_address());
  return addresses;
}

using Streams = std::vector<std::vector<std::unique_ptr<Stream>>>;

void place(Streams& streams, const Claim& claim, UniqueFd connection, std::chrono::milliseconds peer_timeout) {
  tune_connection(connection.get(), peer_timeout, Traffic::bulk);
  streams[claim.rank][claim.stream - 1] = std::make_unique<TcpStream>(std::move(connection));
}

}  // namespace

Streams connect_tcp_mesh(Control& control, const std::vector<int>& hosts, Deadline deadline) {
  int me = control.rank();
  auto peer_timeout = env::duration("TRIREME_PEER_TIMEOUT_MS");
  AuthListener listener(control.job(), control.secret(), static_cast<uint32_t>(control.size()));
  Endpoint mine{reachable_addresses(control), listener.port(), static_cast<uint32_t>(env::integer("TRIREME_TCP_STREAMS"))};
  std::vector<std::string> cards = control.allgather(mine.encode(), deadline);

  Streams streams(cards.size());
  size_t expected = 0;
  for (int peer = 0; peer < control.size(); ++peer) {
    if (hosts[peer] == hosts[me]) continue;
    Endpoint theirs = Endpoint::decode(cards[peer]);
    if (theirs.streams != mine.streams) {
      throw InvalidArgument(str("rank ", me, ": TRIREME_TCP_STREAMS is ", mine.streams, " here but ", theirs.streams, " on rank ", peer));
    }
    streams[peer].resize(mine.streams);
    if (peer > me) expected += mine.streams;
  }
  for (int peer = 0; peer < me; ++peer) {
    Endpoint theirs = Endpoint::decode(cards[peer]);
    for (uint32_t stream = 1; stream <= streams[peer].size(); ++stream) {
      Claim claim{control.job(), static_cast<uint32_t>(control.size()), static_cast<uint32_t>(me), stream};
      UniqueFd connection = connect_proved(theirs.addresses, theirs.port, control.secret(), claim, deadline);
      claim.rank = static_cast<uint32_t>(peer);
      place(streams, claim, std::move(connection), peer_timeout);
    }
  }
  while (expected != 0) {
    auto accepted = listener.accept(deadline);
    if (!accepted) throw Timeout(str("rank ", me, ": ", expected, " data connections of higher ranks did not come; is a firewall between the hosts?"));
    auto& [connection, claim] = *accepted;
    bool is_one = claim.stream >= 1 && claim.stream <= streams[claim.rank].size() && static_cast<int>(claim.rank) > me;
    // The first of two claimants may be one that gave up waiting and is back. (Who is lost and does not come back, the next step names.)
    std::unique_ptr<Stream>* seat = is_one ? &streams[claim.rank][claim.stream - 1] : nullptr;
    if (seat && *seat && is_lost((*seat)->fd())) {
      seat->reset();
      ++expected;
    }
    if (!seat || *seat) {
      AuthListener::refuse(std::move(connection), "this data connection is already there");
      continue;
    }
    AuthListener::confirm(connection.get());
    place(streams, claim, std::move(connection), peer_timeout);
    --expected;
  }
  return streams;
}

}  // namespace trireme::ccl
