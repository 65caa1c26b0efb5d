// The accept loop. Each connection that has not proved itself yet is a Pending: a descriptor, a handshake and a deadline of
// its own. Nothing here waits for a particular one of them.
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <deque>
#include <list>
#include <thread>

#include "trireme/base/env.h"
#include "trireme/base/log.h"
#include "trireme/ccl/bootstrap/control.h"
#include "trireme/ccl/bootstrap/forked_child.h"
#include "trireme/ccl/bootstrap/handshake.h"
#include "trireme/ccl/bootstrap/random.h"
#include "trireme/ccl/bootstrap/socket.h"
#include "trireme/ccl/bootstrap/wire.h"

namespace trireme::ccl {

namespace {

constexpr size_t kMaxPending = 256;
// An honest rank needs two round trips. A second covers a SYN that was lost once, two a rank that shares its core.
constexpr std::chrono::milliseconds kPendingTimeout{2000};
// Connections taken between two looks at those that are under way: a flood must not keep them waiting.
constexpr int kAcceptBurst = 32;

struct Pending {
  Pending(ProcessFd connection, const ServerHandshake& state)
      : fd(std::move(connection)), handshake(state), deadline(Deadline::after(kPendingTimeout)) {}

  ProcessFd fd;
  ServerHandshake handshake;
  Deadline deadline;
  std::string input;
};

}  // namespace

class AuthListener::Impl {
 public:
  using Proved = std::pair<UniqueFd, Claim>;

  Impl(const JobId& job, const Secret& secret, uint32_t size, const std::string& address, uint16_t port)
      : job_(job),
        secret_(secret),
        size_(size),
        peer_timeout_(env::duration("TRIREME_PEER_TIMEOUT_MS")),
        listener_(listen_on(address, port)),
        epoll_(UniqueFd(::epoll_create1(EPOLL_CLOEXEC))) {
    if (!epoll_) throw IoError(errno_message("epoll_create1", errno));
    watch(listener_.get(), nullptr);
  }

  uint16_t port() const { return local_port(listener_.get()); }
  int descriptor() const { return epoll_.get(); }

  std::optional<Proved> accept(Deadline deadline) {
    for (;;) {
      if (!proved_.empty()) return take_proved();
      const bool last_look = deadline.passed();
      serve_ready(last_look ? 0 : poll_ms(deadline));
      drop_expired();
      if (last_look && proved_.empty()) return std::nullopt;
    }
  }

 private:
  // In order of arrival, so the oldest is at the front and deadlines ascend.
  using PendingList = std::list<Pending>;

  void watch(int fd, Pending* pending) {
    epoll_event event{};
    event.events = EPOLLIN | EPOLLRDHUP;
    event.data.ptr = pending;
    if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) throw IoError(errno_message("epoll_ctl", errno));
  }

  int poll_ms(Deadline deadline) const {
    Deadline next = pending_.empty() ? deadline : Deadline::earlier(deadline, pending_.front().deadline);
    return next.left_ms(1 << 30);
  }

  std::optional<Proved> take_proved() {
    std::optional<Proved> out;
    out.emplace(proved_.front().first.release(), proved_.front().second);
    proved_.pop_front();
    return out;
  }

  // Those under way come before new ones: bytes that have arrived are never lost to a flood.
  void serve_ready(int timeout_ms) {
    std::array<epoll_event, 64> events;
    int count = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), timeout_ms);
    if (count < 0 && errno != EINTR) throw IoError(errno_message("epoll_wait", errno));
    bool newcomers = false;
    for (int i = 0; i < count; ++i) {
      if (auto* pending = static_cast<Pending*>(events[i].data.ptr)) {
        advance(*pending);
      } else {
        newcomers = true;
      }
    }
    if (newcomers) take_newcomers();
  }

  void take_newcomers() {
    for (int i = 0; i < kAcceptBurst; ++i) {
      UniqueFd fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (fd) {
        add_pending(std::move(fd));
      } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
        return make_room();
      } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
        return;
      }  // anything else concerns one connection that is gone already
    }
  }

  // Out of descriptors: half of the pending ones make room. Where there are none, somebody else in the process has to.
  void make_room() {
    log_once(
        LogLevel::warn,
        "out of descriptors while ranks are joining; dropping connections that have not proved themselves. See ulimit -n.");
    if (pending_.empty()) return std::this_thread::sleep_for(std::chrono::milliseconds(10));
    for (size_t i = (pending_.size() + 1) / 2; i > 0; --i) drop(pending_.front());
  }

  void add_pending(UniqueFd fd) {
    if (pending_.size() == kMaxPending) drop(pending_.front());
    pending_.emplace_back(ProcessFd(std::move(fd)), ServerHandshake(job_, secret_, size_, random<Nonce>()));
    try {
      watch(pending_.back().fd.get(), &pending_.back());
    } catch (const IoError& error) {
      log_once(LogLevel::warn, str("dropped a connection: ", error.what()));
      return drop(pending_.back());
    }
    // Most have sent their hello by now: it saves a turn.
    advance(pending_.back());
  }

  // Takes what has arrived. May drop `pending`.
  void advance(Pending& pending) {
    try {
      while (size_t missing = pending.handshake.wants() - pending.input.size()) {
        std::array<char, std::max(kHelloBytes, kProofBytes)> buffer;
        size_t got = recv_some(pending.fd.get(), buffer.data(), std::min(missing, buffer.size()));
        if (got == 0) return;
        pending.input.append(buffer.data(), got);
        if (got == missing) reply(pending, pending.handshake.step(std::exchange(pending.input, {})));
      }
      if (pending.handshake.state() == ServerHandshake::State::proved) promote(pending);
    } catch (const IoError& error) {
      log(LogLevel::debug, str("dropped a connection that did not prove itself: ", error.what()));
    }
    drop(pending);
  }

  // A few bytes into an empty socket: one that does not take them at once is not an honest rank's.
  static void reply(Pending& pending, const std::string& bytes) {
    if (send_some(pending.fd.get(), bytes) != bytes.size()) throw ConnectionLost("takes no answer");
  }

  void promote(Pending& pending) {
    // One that gave up while it waited would only keep its rank's place.
    if (is_lost(pending.fd.get())) return;
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, pending.fd.get(), nullptr);
    tune_connection(pending.fd.get(), peer_timeout_);
    proved_.emplace_back(std::move(pending.fd), pending.handshake.claim());
  }

  void drop(Pending& pending) {
    if (pending.fd) ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, pending.fd.get(), nullptr);
    auto at = std::find_if(pending_.begin(), pending_.end(), [&](const Pending& p) { return &p == &pending; });
    pending_.erase(at);
  }

  void drop_expired() {
    while (!pending_.empty() && pending_.front().deadline.passed()) drop(pending_.front());
  }

  const JobId job_;
  const Secret secret_;
  const uint32_t size_;
  const std::chrono::milliseconds peer_timeout_;
  ProcessFd listener_;
  ProcessFd epoll_;
  PendingList pending_;
  std::deque<std::pair<ProcessFd, Claim>> proved_;
};

AuthListener::AuthListener(const JobId& job, const Secret& secret, uint32_t size, const std::string& address, uint16_t port)
    : impl_(std::make_unique<Impl>(job, secret, size, address, port)) {}

AuthListener::~AuthListener() = default;

uint16_t AuthListener::port() const { return impl_->port(); }

int AuthListener::descriptor() const { return impl_->descriptor(); }

std::optional<std::pair<UniqueFd, Claim>> AuthListener::accept(Deadline deadline) { return impl_->accept(deadline); }

void AuthListener::refuse(UniqueFd connection, const std::string& reason) {
  try {
    send_some(connection.get(), encode_note({false, reason}));
  } catch (const ConnectionLost&) {
  }
}

void AuthListener::confirm(int connection) {
  try {
    send_some(connection, encode_note({true, ""}));
  } catch (const ConnectionLost&) {
  }
}

}  // namespace trireme::ccl
