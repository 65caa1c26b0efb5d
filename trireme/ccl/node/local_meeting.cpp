#include "trireme/ccl/node/local_meeting.h"

#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <map>

#include "trireme/base/env.h"
#include "trireme/base/error.h"
#include "trireme/base/log.h"
#include "trireme/ccl/bootstrap/sha256.h"
#include "trireme/ccl/bootstrap/wire.h"

namespace trireme::ccl {
namespace {

constexpr std::string_view kSegmentMessage = "segment";
constexpr std::string_view kHelloMessage = "hello";

// What a rank tells all others about where it is.
struct Card {
  std::string host_key;  // equal for ranks that may share memory
  std::string host_name;
  std::string socket_name;

  std::string encode() const {
    wire::Writer writer;
    writer.string(host_key);
    writer.string(host_name);
    writer.string(socket_name);
    return writer.take();
  }
  static Card decode(const std::string& bytes) {
    wire::Reader reader(bytes);
    Card card;
    card.host_key = reader.string(512);
    card.host_name = wire::printable(reader.string(256));
    card.socket_name = reader.string(100);
    return card;
  }
};

// Two ranks can pass descriptors only inside one network namespace of one booted kernel.
std::string host_key(const std::string& label, int rank) {
  if (!env::flag("TRIREME_SHARED_MEMORY")) return str("alone-", rank);
  std::string boot_id;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot_id;
  struct stat network {};
  if (boot_id.empty() || stat("/proc/self/ns/net", &network) != 0) return str("unknown-", rank);
  return str(boot_id, "/", network.st_ino, "/", label);
}

std::string host_name() {
  char name[256] = "?";
  gethostname(name, sizeof name - 1);
  return name;
}

uint64_t nonce_for(const Control& control, std::string_view purpose, int rank) {
  Digest digest = hmac_sha256(control.secret(), str(purpose, "/", rank));
  uint64_t nonce;
  std::memcpy(&nonce, digest.data(), sizeof nonce);
  return nonce | 1;
}

// A datagram to a member: what it is, who sends it, a number, and a proof that the sender knows the job's secret.
struct Datagram {
  std::string kind;
  uint32_t from = 0;
  uint64_t number = 0;

  std::string encode(const Control& control) const {
    wire::Writer writer;
    writer.string(kind);
    writer.integer(from);
    writer.integer(number);
    Digest proof = hmac_sha256(control.secret(), writer.bytes());
    writer.raw(std::span<const uint8_t>(proof));
    return writer.take();
  }
  static Datagram decode(const Control& control, const std::string& bytes) {
    wire::Reader reader(bytes);
    Datagram datagram;
    datagram.kind = reader.string(16);
    datagram.from = reader.integer<uint32_t>();
    datagram.number = reader.integer<uint64_t>();
    Digest proof = reader.array<32>();
    std::string_view signed_part(bytes.data(), bytes.size() - proof.size());
    if (!equal_in_constant_time(proof, hmac_sha256(control.secret(), signed_part))) throw wire::Malformed("a wrong proof");
    return datagram;
  }
};

// One rank's side of the meeting.
class Meeter {
 public:
  Meeter(Control& control, std::vector<LocalPeer> members, int me, LocalSocket socket, Deadline deadline)
      : control_(control), deadline_(deadline) {
    group_.members = std::move(members);
    group_.me = me;
    group_.socket = std::move(socket);
    group_.event_fds.resize(group_.members.size());
    heard_.resize(group_.members.size(), false);
  }

  // Throws when some member is out of reach.
  void share_segment() {
    size_t staging = env::bytes("TRIREME_SEGMENT_BYTES");
    int ranks = static_cast<int>(group_.members.size());
    int leader = group_.members[0].global_rank;
    if (group_.me == 0) {
      group_.segment = Segment::create(ranks, staging, false);
      group_.segment.header().nonce = nonce_for(control_, kSegmentMessage, leader);
      for (int peer = 1; peer < ranks; ++peer) send(peer, kSegmentMessage, staging, group_.segment.fd());
      return;
    }
    while (!group_.segment) take_one();
    if (group_.segment.header().nonce != nonce_for(control_, kSegmentMessage, leader)) {
      throw IoError("the shared memory does not show the job's nonce");
    }
  }

  // Every member tells every other where its nonce lies and how to wake it.
  void greet(const uint64_t& nonce) {
    // Lets the others read this process where Yama restricts it to descendants.
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
    UniqueFd mine(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!mine) throw IoError(errno_message("eventfd", errno));
    for (int peer = 0; peer < size(); ++peer) {
      if (peer != group_.me) send(peer, kHelloMessage, reinterpret_cast<uint64_t>(&nonce), mine.get());
    }
    group_.event_fds[group_.me] = ProcessFd(std::move(mine));
    heard_[group_.me] = true;
    for (int peer = 0; peer < size(); ++peer) {
      while (!heard_[peer]) take_one();
    }
  }

  bool direct_reads_work() const { return direct_ || size() == 1; }
  LocalGroup take() { return std::move(group_); }

 private:
  int size() const { return static_cast<int>(group_.members.size()); }

  void send(int peer, std::string_view kind, uint64_t number, int fd) {
    std::string bytes = Datagram{std::string(kind), static_cast<uint32_t>(group_.me), number}.encode(control_);
    // A full queue drains only while its owner reads; we may be what its owner waits for, so read meanwhile.
    for (;;) {
      auto sent = group_.socket.try_send(group_.members[peer].socket_name, bytes, {&fd, 1});
      if (sent == LocalSocket::Sent::yes) return;
      if (sent == LocalSocket::Sent::nobody_there) throw IoError(str("no socket of rank ", group_.members[peer].global_rank, " is within reach"));
      if (deadline_.passed()) throw Timeout(str("rank ", group_.members[peer].global_rank, " of this host takes no messages"));
      if (auto message = group_.socket.receive(Deadline::after(std::chrono::milliseconds(1)))) take(*message);
    }
  }

  void take_one() {
    auto message = group_.socket.receive(deadline_);
    if (!message) throw Timeout("a rank of this host did not introduce itself; see CCL_KVS_CONNECTION_TIMEOUT");
    take(*message);
  }

  void take(LocalMessage& message) {
    try {
      Datagram datagram = Datagram::decode(control_, message.bytes);
      if (message.fds.size() != 1 || datagram.from >= group_.members.size()) return;
      if (datagram.kind == kSegmentMessage) group_.segment = Segment::open(std::move(message.fds[0]), size(), datagram.number);
      else take_hello(datagram, message);
    } catch (const wire::Malformed&) {
      log(LogLevel::debug, "ignored a datagram that no rank of this job sent");
    }
  }

  void take_hello(const Datagram& datagram, LocalMessage& message) {
    LocalPeer& peer = group_.members[datagram.from];
    peer.pid = message.sender;
    group_.event_fds[datagram.from] = ProcessFd(std::move(message.fds[0]));
    heard_[datagram.from] = true;
    uint64_t expected = nonce_for(control_, kHelloMessage, peer.global_rank);
    direct_ = direct_ && peer.pid != 0 && direct_read_works(peer.pid, datagram.number, expected);
  }

  Control& control_;
  Deadline deadline_;
  LocalGroup group_;
  std::vector<bool> heard_;
  bool direct_ = env::flag("TRIREME_DIRECT_READ");
};

std::vector<int> number_hosts(const std::vector<std::string>& keys) {
  std::map<std::string, int> numbers;
  std::vector<int> hosts;
  for (const std::string& key : keys) hosts.push_back(numbers.emplace(key, static_cast<int>(numbers.size())).first->second);
  return hosts;
}

}  // namespace

Meeting meet_locally(Control& control, const std::string& label, Deadline deadline) {
  int me = control.rank();
  LocalSocket socket = LocalSocket::open();
  std::string mine = Card{host_key(label, me), host_name(), socket.name()}.encode();
  Meeting meeting;
  std::vector<std::string> keys;
  std::vector<Card> cards;
  for (const std::string& bytes : control.allgather(mine, deadline)) {
    cards.push_back(Card::decode(bytes));
    keys.push_back(cards.back().host_key);
    meeting.host_names.push_back(cards.back().host_name);
  }

  std::vector<LocalPeer> members;
  int local_me = 0;
  for (int rank = 0; rank < control.size(); ++rank) {
    if (keys[rank] != keys[me]) continue;
    if (rank == me) local_me = static_cast<int>(members.size());
    members.push_back({rank, getpid(), cards[rank].socket_name});
  }
  if (members.size() > kMaxLocalRanks) throw InvalidArgument(str(members.size(), " ranks on one host; at most ", kMaxLocalRanks, " are supported"));

  std::string problem;
  uint64_t nonce = nonce_for(control, kHelloMessage, me);
  std::vector<LocalPeer> alone = {members[local_me]};
  Meeter meeter(control, std::move(members), local_me, std::move(socket), deadline);
  try {
    meeter.share_segment();
    meeter.greet(nonce);
  } catch (const IoError& error) {
    problem = error.what();
  }

  // Nobody reads anybody's nonce after this exchange. A group in which one member failed falls apart into single hosts.
  wire::Writer verdict;
  verdict.string(problem);
  verdict.integer(static_cast<uint8_t>(meeter.direct_reads_work()));
  bool direct = true;
  std::map<std::string, std::string> failed;
  std::vector<std::string> verdicts = control.allgather(verdict.take(), deadline);
  for (int rank = 0; rank < control.size(); ++rank) {
    wire::Reader reader(verdicts[rank]);
    std::string theirs(reader.string(1024));
    if (!theirs.empty()) failed.emplace(keys[rank], str("rank ", rank, ": ", theirs));
    if (keys[rank] == keys[me]) direct = direct && reader.integer<uint8_t>() != 0;
  }
  bool apart = failed.count(keys[me]) != 0;
  if (apart) {
    log(LogLevel::warn, str("ranks of this host cannot share memory and use the network instead: ", failed[keys[me]]));
    Meeter single(control, alone, 0, LocalSocket::open(), deadline);
    single.share_segment();
    single.greet(nonce);
    meeting.local = single.take();
  } else {
    meeting.local = meeter.take();
  }
  for (int rank = 0; rank < control.size(); ++rank) {
    if (failed.count(keys[rank])) keys[rank] += str("/", rank);
  }
  meeting.hosts = number_hosts(keys);
  meeting.local.segment.close_fd();
  meeting.local.access = direct && !apart ? PeerMemory::Access::direct : PeerMemory::Access::regions_only;
  return meeting;
}

}  // namespace trireme::ccl
