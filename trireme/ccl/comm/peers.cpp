// How a communicator learns that a peer is gone, and tells the others: pidfds within the host, the control connections between hosts.
#include <poll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <thread>
#include <vector>

#include "trireme/base/env.h"
#include "trireme/base/error.h"
#include "trireme/base/log.h"
#include "trireme/ccl/bootstrap/frame.h"
#include "trireme/ccl/bootstrap/socket.h"
#include "trireme/ccl/bootstrap/wire.h"
#include "trireme/ccl/comm/state.h"
#include "trireme/ccl/comm/watcher.h"

namespace trireme::ccl {
namespace {

// What travels on the control connections once the communicator is up.
enum NoticeKind : uint8_t { kPoisonNotice = 'P', kLeaveNotice = 'L', kHeartbeat = 'H' };
constexpr size_t kMaxNoticeBytes = 4096;
// Rank 0 sends this many in the time after which silence counts as loss, and the others answer. The kernel's own probes are a second apart:
// within a short timeout there is one, and it may be lost; these are sent again until they have come.
constexpr int kHeartbeatsPerTimeout = 8;
// A rank that is stopped answers nothing, and its queue must not fill up.
constexpr int kMaxUnanswered = 16;

std::string encode_poison(const PoisonNote& note) {
  wire::Writer writer;
  writer.integer(static_cast<uint32_t>(note.kind));
  writer.integer(static_cast<uint32_t>(note.rank));
  writer.string(note.text.substr(0, 2048));
  return encode_frame(kPoisonNotice, writer.bytes());
}

PoisonNote decode_poison(const std::string& payload) {
  wire::Reader reader(payload);
  PoisonNote note;
  note.kind = static_cast<PoisonNote::Kind>(std::min<uint32_t>(reader.integer<uint32_t>(), PoisonNote::aborted));
  note.rank = static_cast<int>(reader.integer<uint32_t>());
  note.text = wire::printable(reader.string(2048), 2048);
  return note;
}

}  // namespace

void CommunicatorState::open() { watch_peers(); }

void CommunicatorState::watch_peers() {
  std::weak_ptr<CommunicatorState> weak = weak_from_this();
  for (const PeerProcess& process : processes_) {
    if (process.gone) peer_died(process.rank, str("its process ", process.pid, " is gone"));
    if (!process.pidfd) continue;  // its control connection shows when it ends
    watches_.push_back(Watcher::instance().watch(process.pidfd->get(), [weak, rank = process.rank, pid = process.pid] {
      if (auto self = weak.lock()) self->peer_died(rank, str("its process ", pid, " ended"));
      return false;
    }));
  }
  if (!control_) return;
  notices_.resize(static_cast<size_t>(topology_.size()));
  for (int rank = 0; rank < topology_.size(); ++rank) {
    int fd = control_->connection_to(rank);
    if (fd < 0) continue;
    notices_[rank] = std::make_unique<FrameAssembler>(kMaxNoticeBytes);
    watches_.push_back(Watcher::instance().watch(fd, [weak, rank] {
      auto self = weak.lock();
      return self && self->take_notice(rank);
    }));
  }
  if (topology_.rank == 0 && !topology_.one_host()) begin_heartbeats();  // a host loses nothing on the way to itself
}

void CommunicatorState::begin_heartbeats() {
  const auto interval = std::max(env::duration("TRIREME_PEER_TIMEOUT_MS") / kHeartbeatsPerTimeout, std::chrono::milliseconds(50));
  itimerspec times{};
  times.it_interval.tv_sec = times.it_value.tv_sec = interval.count() / 1000;
  times.it_interval.tv_nsec = times.it_value.tv_nsec = interval.count() % 1000 * 1000000;
  heartbeat_ = ProcessFd(UniqueFd(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK)));
  if (!heartbeat_ || timerfd_settime(heartbeat_.get(), 0, &times, nullptr) != 0) throw IoError(errno_message("timerfd", errno));
  unanswered_.resize(static_cast<size_t>(topology_.size()));
  watches_.push_back(Watcher::instance().watch(heartbeat_.get(), [weak = weak_from_this()] {
    auto self = weak.lock();
    if (self) self->send_heartbeats();
    return self != nullptr;
  }));
}

// On the watcher's thread. What is not acknowledged yet does as well as another one.
void CommunicatorState::send_heartbeats() {
  uint64_t expirations;
  [[maybe_unused]] ssize_t got = ::read(heartbeat_.get(), &expirations, sizeof expirations);
  for (int rank = 1; rank < topology_.size(); ++rank) {
    const int fd = control_->connection_to(rank);
    if (unanswered_[rank] == kMaxUnanswered || has_unacknowledged(fd)) continue;
    ++unanswered_[rank];
    beat(fd);
  }
}

void CommunicatorState::beat(int fd) {
  try {
    send_some(fd, encode_frame(kHeartbeat, ""));
  } catch (const ConnectionLost&) {
    // Who watches the connection is told.
  }
}

void CommunicatorState::peer_died(int rank, const std::string& how) {
  if (closing_.load()) return;
  bool left_in_order = topology_.hosts[rank] == topology_.my_host() && node_->progress_of(topology_.local[rank]) == kLeft;
  PoisonNote note{PoisonNote::peer_lost, rank, str("lost rank ", rank, " on host ", host_names_[rank], ": ", how, ". The communicator is dead; make a new one.")};
  {
    std::lock_guard lock(poison_mutex_);
    if (left_in_order || departed_[rank] || poison_) return;
  }
  poison(std::move(note), rank);
  interrupt();
}

// On the watcher's thread. False: nothing more will come from there.
bool CommunicatorState::take_notice(int from) {
  int fd = control_->connection_to(from);
  try {
    while (auto frame = receive_some(fd, *notices_[from])) {
      if (frame->kind == kLeaveNotice) {
        std::lock_guard lock(poison_mutex_);
        departed_[from] = true;
      } else if (frame->kind == kPoisonNotice) {
        poison(decode_poison(frame->payload), from);
        interrupt();
      } else if (frame->kind == kHeartbeat) {
        if (topology_.rank == 0) unanswered_[from] = 0;
        else beat(fd);
      }
    }
    return true;
  } catch (const Error& error) {
    peer_died(from, error.what());
    return false;
  }
}

// Rank 0 tells everybody, the others tell rank 0.
void CommunicatorState::tell_others(const PoisonNote& note, int except) {
  if (!control_) return;
  for (int rank = 0; rank < topology_.size(); ++rank) {
    int fd = control_->connection_to(rank);
    if (fd >= 0 && rank != except) tell(fd, encode_poison(note));
  }
}

void CommunicatorState::tell(int fd, const std::string& frame) {
  try {
    send_all(fd, frame, Deadline::after(std::chrono::milliseconds(500)));
  } catch (const Error&) {
    // Gone already, or too slow to be told: it will see the connection end.
  }
}

void CommunicatorState::close() {
  if (closing_.exchange(true)) return;
  for (uint64_t watch : watches_) Watcher::instance().unwatch(watch);
  watches_.clear();
  // What is queued must still get out; then the streams end.
  interrupt();
  while (driving_.exchange(true)) std::this_thread::yield();
  const Turn turn(*this);
  end_collective_under_way();
  const Deadline patience = Deadline::after(std::chrono::seconds(5));
  const bool orderly = !poisoned_.load();
  std::vector<pollfd> connections;
  if (orderly) {
    messenger_->send_leave();
    try {
      while (!messenger_->flush() && !patience.passed()) std::this_thread::yield();
    } catch (const Error& error) {
      log(LogLevel::debug, str("rank ", topology_.rank, ": while leaving: ", error.what()));
    }
    messenger_->add_poll_fds(connections);
    node_->advance(kLeft);
    for (int peer = 0; peer < node_->size(); ++peer) {
      if (peer != node_->rank()) node_->notify(peer);
    }
    if (!messages_.empty()) await_users_of_buffers();  // an offer may just be taken up
  }
  if (control_) {
    for (int rank = 0; rank < topology_.size(); ++rank) {
      int fd = control_->connection_to(rank);
      if (fd < 0) continue;
      tell(fd, encode_frame(kLeaveNotice, ""));
      connections.push_back({fd, 0, 0});
    }
  }
  // A connection that is closed while its peer still sends is reset, and what was lost on the way to the peer is not sent again.
  auto arrived = [&] {
    return std::none_of(connections.begin(), connections.end(),
                        [](const pollfd& each) { return has_unacknowledged(each.fd); });
  };
  while (orderly && !arrived() && !patience.passed()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  end_pending();
}

// The others are in the midst of it, and who leaves counts as come to every step: they must not go on with what is not there.
void CommunicatorState::end_collective_under_way() {
  if (engine_.failure() || !has_work()) return;
  poll();  // it may need no more than a look
  if (engine_.failure() || !collective_started_) return;
  const RequestState& running = *collectives_.front();
  fail(std::make_exception_ptr(Aborted(str("rank ", topology_.rank, ": operation #", running.number, ": ", ccl::describe(running.op),
                                           ": the communicator was closed on this rank before it was complete"))));
}

// Nobody will drive what is still pending, so it ends here. The others need not be told: this rank has left.
void CommunicatorState::end_pending() {
  if (!error()) {
    std::lock_guard lock(poison_mutex_);
    poison_ = std::make_exception_ptr(Aborted("the communicator was closed before it was complete"));
    poisoned_.store(true, std::memory_order_release);
    engine_.fail(poison_);
    messenger_->forget_all();
  }
  {
    std::lock_guard lock(inbox_mutex_);
    ended_ = true;
  }
  poll();
}

}  // namespace trireme::ccl
