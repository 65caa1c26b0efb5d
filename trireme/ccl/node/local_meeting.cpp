#include "trireme/ccl/node/local_meeting.h"

#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <map>

#include "trireme/base/env.h"
#include "trireme/base/error.h"
#include "trireme/base/log.h"
#include "trireme/ccl/bootstrap/sha256.h"
#include "trireme/ccl/bootstrap/socket.h"
#include "trireme/ccl/bootstrap/wire.h"

namespace trireme::ccl {
namespace {

constexpr std::string_view kSegmentMessage = "segment";
constexpr std::string_view kHelloMessage = "hello";
constexpr std::string_view kRegionMessage = "region";
constexpr size_t kMaxProblemBytes = 1024;
// Between two looks at whether all ranks are still there, and between two tries to send to a full queue.
constexpr std::chrono::milliseconds kLookUp{100}, kTryAgain{1};

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

  // What a rank can do without waiting for another: makes its part of what is shared, and sends it as far as the others' queues have room.
  void offer(const uint64_t& nonce) {
    size_t staging = env::bytes("TRIREME_SEGMENT_BYTES");
    if (group_.me == 0) {
      // A rank alone needs no memory that others could map.
      group_.segment = Segment::create(size(), staging, size() == 1);
      group_.segment.header().nonce = segment_nonce();
    }
    // Lets the others read this process where Yama restricts it to descendants.
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
    UniqueFd mine(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!mine) throw IoError(errno_message("eventfd", errno));
    group_.event_fds[group_.me] = ProcessFd(std::move(mine));
    heard_[group_.me] = true;
    // Every member tells every other where its nonce lies and how to wake it.
    for (int peer = 0; peer < size(); ++peer) {
      if (peer == group_.me) continue;
      if (group_.me == 0) outbox_.push_back({peer, kSegmentMessage, staging, group_.segment.fd()});
      outbox_.push_back({peer, kHelloMessage, reinterpret_cast<uint64_t>(&nonce), group_.event_fds[group_.me].get()});
    }
    send_some();
  }

  // Sends what is left, and takes what the others have sent. One that cannot use it says so afterwards: it goes on taking until it has heard
  // all, because a queue that nobody reads would hold up who has yet to send.
  void complete() {
    while (!all_came()) {
      send_some();
      if (auto message = group_.socket.receive(Deadline::earlier(deadline_, Deadline::after(outbox_.empty() ? kLookUp : kTryAgain)))) {
        take(*message);
      } else if (deadline_.passed()) {
        throw Timeout(str("rank ", group_.members[group_.me].global_rank, ": ", silent(), " of this host did not introduce itself in time; see ",
                          "CCL_KVS_CONNECTION_TIMEOUT or, in torch, the group's timeout"));
      } else if (somebody_is_gone()) {
        throw IoError("a rank has gone while ranks of this host met");
      }
    }
    if (!problem_.empty()) throw IoError(problem_);
    if (group_.segment.header().nonce != segment_nonce()) throw IoError("the shared memory does not show the job's nonce");
  }

  bool direct_reads_work() const { return direct_ || size() == 1; }
  LocalGroup take() { return std::move(group_); }

 private:
  int size() const { return static_cast<int>(group_.members.size()); }
  std::string silent() const {
    std::string ranks;
    for (int peer = 0; peer < size(); ++peer) {
      if (!heard_[peer]) ranks += str(ranks.empty() ? "rank " : ", rank ", group_.members[peer].global_rank);
    }
    return ranks.empty() ? "rank " + std::to_string(group_.members[0].global_rank) : ranks;  // the first one's segment has not come
  }

  struct Outgoing {
    int peer;
    std::string_view kind;
    uint64_t number;
    int fd;
  };

  uint64_t segment_nonce() const { return nonce_for(control_, kSegmentMessage, group_.members[0].global_rank); }
  bool all_came() const {
    return outbox_.empty() && (group_.me == 0 || segment_came_) && std::find(heard_.begin(), heard_.end(), false) == heard_.end();
  }

  // What finds a full queue stays in the outbox.
  void send_some() {
    std::erase_if(outbox_, [&](const Outgoing& out) {
      std::string bytes = Datagram{std::string(out.kind), static_cast<uint32_t>(group_.me), out.number}.encode(control_);
      auto sent = group_.socket.try_send(group_.members[out.peer].socket_name, bytes, {&out.fd, 1});
      if (sent == LocalSocket::Sent::nobody_there) {
        throw IoError(str("no socket of rank ", group_.members[out.peer].global_rank, " is within reach"));
      }
      return sent == LocalSocket::Sent::yes;
    });
  }

  bool somebody_is_gone() const {
    for (int rank = 0; rank < control_.size(); ++rank) {
      if (int fd = control_.connection_to(rank); fd >= 0 && is_lost(fd)) return true;
    }
    return false;
  }

  void take(LocalMessage& message) {
    try {
      Datagram datagram = Datagram::decode(control_, message.bytes);
      if (message.fds.size() != 1 || datagram.from >= group_.members.size()) return;
      if (datagram.kind == kSegmentMessage) take_segment(datagram, message);
      else take_hello(datagram, message);
    } catch (const wire::Malformed&) {
      log(LogLevel::debug, "ignored a datagram that no rank of this job sent");
    }
  }

  void take_segment(const Datagram& datagram, LocalMessage& message) {
    segment_came_ = true;
    try {
      group_.segment = Segment::open(std::move(message.fds[0]), size(), datagram.number);
    } catch (const IoError& error) {
      problem_ = error.what();
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
  std::vector<Outgoing> outbox_;
  std::vector<bool> heard_;
  bool segment_came_ = false;
  std::string problem_;  // with what has come
  bool direct_ = env::flag("TRIREME_DIRECT_READ");
};

std::vector<int> number_hosts(const std::vector<std::string>& keys) {
  std::map<std::string, int> numbers;
  std::vector<int> hosts;
  for (const std::string& key : keys) hosts.push_back(numbers.emplace(key, static_cast<int>(numbers.size())).first->second);
  return hosts;
}

// What went wrong, or "".
template <class Step>
std::string attempt(const Step& step) {
  try {
    step();
    return "";
  } catch (const IoError& error) {
    return error.what();
  }
}

// How a step of the meeting went, everywhere.
struct Verdicts {
  std::map<std::string, std::string> failed;  // by host: what a rank of it failed with. Such a host falls apart into one per rank.
  bool direct = true;                         // on this host
};

Verdicts exchange(Control& control, const std::vector<std::string>& keys, const std::string& problem, bool direct, Deadline deadline) {
  wire::Writer mine;
  mine.string(problem.substr(0, kMaxProblemBytes));
  mine.integer(static_cast<uint8_t>(direct));
  std::vector<std::string> all = control.allgather(mine.take(), deadline);
  Verdicts verdicts;
  for (int rank = 0; rank < control.size(); ++rank) {
    wire::Reader reader(all[rank]);
    std::string theirs = wire::printable(reader.string(kMaxProblemBytes), kMaxProblemBytes);
    if (!theirs.empty()) verdicts.failed.emplace(keys[rank], str("rank ", rank, ": ", theirs));
    if (keys[rank] == keys[control.rank()]) verdicts.direct = verdicts.direct && reader.integer<uint8_t>() != 0;
  }
  return verdicts;
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
    members.push_back({rank, getpid(), cards[rank].socket_name, nonce_for(control, kRegionMessage, rank)});
  }
  if (members.size() > kMaxLocalRanks) throw InvalidArgument(str(members.size(), " ranks on one host; at most ", kMaxLocalRanks, " are supported"));

  uint64_t nonce = nonce_for(control, kHelloMessage, me);
  std::vector<LocalPeer> alone = {members[local_me]};
  Meeter meeter(control, std::move(members), local_me, std::move(socket), deadline);
  // Nobody waits for what a rank of its host could not send. Nobody reads anybody's nonce after the second exchange.
  Verdicts first = exchange(control, keys, attempt([&] { meeter.offer(nonce); }), true, deadline);
  bool apart = first.failed.count(keys[me]) != 0;
  std::string problem = apart ? "" : attempt([&] { meeter.complete(); });
  Verdicts second = exchange(control, keys, problem, meeter.direct_reads_work(), deadline);
  std::map<std::string, std::string> failed = std::move(first.failed);
  failed.merge(second.failed);
  apart = failed.count(keys[me]) != 0;
  if (apart) {
    log(LogLevel::warn, str("ranks of this host cannot share memory and use the network instead: ", failed[keys[me]]));
    Meeter single(control, alone, 0, LocalSocket::open(), deadline);
    single.offer(nonce);
    meeting.local = single.take();
  } else {
    meeting.local = meeter.take();
  }
  for (int rank = 0; rank < control.size(); ++rank) {
    if (failed.count(keys[rank])) keys[rank] += str("/", rank);
  }
  meeting.hosts = number_hosts(keys);
  meeting.local.segment.close_fd();
  meeting.local.access = second.direct && !apart ? PeerMemory::Access::direct : PeerMemory::Access::regions_only;
  return meeting;
}

}  // namespace trireme::ccl
