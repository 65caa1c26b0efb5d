// How the star is made: rank 0 seats those who prove themselves, the others look for rank 0 until they find the one of their
// own job.
//
// A key in the store may be left over from an earlier incarnation: its address dead, taken by a stranger, or by an old rank
// 0 that still waits. So a joining rank treats every failure as "not this one", reads the key again, and has joined only
// when rank 0 says that everybody has.
#include <poll.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <thread>

#include "trireme/ccl/bootstrap/connect.h"
#include "trireme/ccl/bootstrap/control_impl.h"
#include "trireme/ccl/bootstrap/invitation.h"
#include "trireme/ccl/bootstrap/random.h"
#include "trireme/ccl/bootstrap/socket.h"
#include "trireme/ccl/bootstrap/wire.h"

namespace trireme::ccl {

namespace {

using std::chrono::milliseconds;

// Between looks for an invitation: short at first, because ranks start together, then gentle to a store that serves thousands.
constexpr milliseconds kFirstPause{1}, kLongestPause{20};
// An address that does not answer (a host that is gone) costs at most this before the key is read again.
constexpr milliseconds kConnectPatience{1000};
constexpr milliseconds kAttemptTimeout{10000};
// While others are still coming, a look at the key now and then: a newer invitation means that this one is stale.
constexpr milliseconds kRereadInterval{200};

class Stopwatch {
 public:
  std::string seconds() const {
    auto elapsed = std::chrono::duration<double>(Deadline::Clock::now() - start_).count();
    char text[32];
    std::snprintf(text, sizeof text, "%.1f s", elapsed);
    return text;
  }

 private:
  Deadline::Clock::time_point start_ = Deadline::Clock::now();
};

bool is_loopback(const std::string& address) { return address.starts_with("127.") || address == "::1"; }

}  // namespace

// Rank 0's side.
class Control::Host {
 public:
  explicit Host(Invitation& invitation)
      : invitation_(invitation),
        impl_(std::make_unique<Impl>(static_cast<int>(invitation.whereabouts.size), 0, invitation.whereabouts.job,
                                     invitation.whereabouts.secret)) {}

  std::unique_ptr<Impl> run(Deadline deadline) {
    for (std::vector<int> absent = absent_ranks(); !absent.empty(); absent = absent_ranks()) {
      auto arrival = invitation_.listener->accept(deadline);
      if (!arrival) give_up(absent);
      seat(std::move(arrival->first), arrival->second);
    }
    impl_->my_address = own_address();
    start();
    return std::move(impl_);
  }

 private:
  // A rank that has gone again is looked for only once all seats are taken: it costs a system call for each.
  std::vector<int> absent_ranks() {
    std::vector<int> absent = empty_seats();
    if (!absent.empty()) return absent;
    for (int rank = 1; rank < impl_->size; ++rank) {
      if (is_lost(impl_->connection_to(rank))) seat_of(rank).reset();
    }
    return empty_seats();
  }

  std::vector<int> empty_seats() {
    std::vector<int> empty;
    for (int rank = 1; rank < impl_->size; ++rank) {
      if (!seat_of(rank)) empty.push_back(rank);
    }
    return empty;
  }

  void seat(UniqueFd connection, const Claim& claim) {
    const int rank = static_cast<int>(claim.rank);
    if (rank == 0 || claim.stream != 0)
      return AuthListener::refuse(std::move(connection), "not a control connection to rank 0");
    ProcessFd& seat = seat_of(rank);
    // The first of two claimants may be one that gave up waiting and is back.
    if (seat && !is_lost(seat.get())) {
      return AuthListener::refuse(std::move(connection), str("rank ", rank, " has joined already, from another process"));
    }
    seat = ProcessFd(std::move(connection));
    AuthListener::confirm(seat.get());
  }

  void start() {
    const std::string frame = encode_frame(kStart, "");
    for (int rank = 1; rank < impl_->size; ++rank) {
      try {
        send_some(impl_->connection_to(rank), frame);
      } catch (const ConnectionLost&) {  // the next operation names it
      }
    }
  }

  [[noreturn]] void give_up(const std::vector<int>& absent) {
    const Whereabouts& at = invitation_.whereabouts;
    const std::string address = at.addresses.empty() ? "this host" : at.addresses.front();
    const std::string reason =
        str("waited ", waited_.seconds(), " for ", at.size - 1, " ranks to join; ", list_ranks(absent),
            " did not come. Are they running, and can they reach ", address, " port ", at.port,
            "? See TRIREME_IFACE for another interface; for more time CCL_KVS_CONNECTION_TIMEOUT or, in torch, the group's timeout.");
    impl_->tell_others({Failure::kNobody, "rank 0 " + reason});
    throw Timeout("rank 0: " + reason);
  }

  // A rank of another host has come by an address that others can use too. One of this host may have come by any, such as
  // that of a bridge for containers: its connection has the same address at both ends.
  std::string own_address() {
    std::string own;
    for (int rank = 1; rank < impl_->size; ++rank) {
      const int connection = impl_->connection_to(rank);
      const std::string here = local_address(connection);
      if (const std::string there = peer_address(connection); !there.empty() && there != here) return here;
      if (own.empty() || is_loopback(own)) own = here;
    }
    if (!own.empty()) return own;
    const auto& addresses = invitation_.whereabouts.addresses;
    return addresses.empty() ? "127.0.0.1" : addresses.front();
  }

  ProcessFd& seat_of(int rank) { return impl_->connections[static_cast<size_t>(rank)]; }

  Invitation& invitation_;
  std::unique_ptr<Impl> impl_;
  Stopwatch waited_;
};

// The side of every other rank.
class Control::Guest {
 public:
  // `read_invitation` returns the newest text, "" when there is none yet.
  Guest(int size, int rank, std::function<std::string()> read_invitation)
      : size_(size), rank_(rank), read_invitation_(std::move(read_invitation)) {}

  std::unique_ptr<Impl> run(Deadline deadline) {
    milliseconds pause = kFirstPause;
    do {
      const std::string text = read_invitation_();
      if (auto impl = text.empty() ? nullptr : attempt(text, deadline)) return impl;
      std::this_thread::sleep_for(pause);
      pause = std::min(2 * pause, kLongestPause);
    } while (!deadline.passed());
    throw Timeout(str("rank ", rank_, ": no word from rank 0 for ", waited_.seconds(), "; ", reason_,
                      ". Is rank 0 running? For more time see CCL_KVS_CONNECTION_TIMEOUT or, in torch, the group's timeout."));
  }

 private:
  // Nothing when this invitation led nowhere; reason_ says why.
  std::unique_ptr<Impl> attempt(const std::string& text, Deadline deadline) try {
    const Whereabouts at = decode_invitation(text);
    if (at.size != static_cast<uint32_t>(size_))
      return nowhere(str("the invitation is for ", at.size, " ranks, not ", size_));
    const Claim claim{at.job, at.size, static_cast<uint32_t>(rank_), 0};
    const Deadline attempt_deadline = Deadline::earlier(deadline, Deadline::after(kAttemptTimeout));
    Attempt attempt = try_connect_proved(at.addresses, at.port, at.secret, claim, kConnectPatience, attempt_deadline);
    if (!attempt.connection) return nowhere(attempt.reason);

    auto impl = std::make_unique<Impl>(size_, rank_, at.job, at.secret);
    impl->my_address = local_address(attempt.connection.get());
    impl->connections[0] = ProcessFd(std::move(attempt.connection));
    return started(*impl, text, deadline) ? std::move(impl) : nullptr;
  } catch (const wire::Malformed& malformed) {
    return nowhere(malformed.what());
  } catch (const ConnectionLost&) {
    return nowhere("rank 0 went away while others were joining");
  }

  // Whether rank 0 has said that everybody is there. False when a newer invitation has appeared first.
  bool started(const Impl& impl, const std::string& text, Deadline deadline) {
    FrameAssembler assembler(kMaxFailureFrameBytes);
    const int fd = impl.connection_to(0);
    while (!deadline.passed()) {
      if (auto frame = receive_some(fd, assembler)) {
        if (frame->kind == kStart) return true;
        if (frame->kind != kFailure) throw wire::Malformed("an unexpected message from rank 0");
        if (read_invitation_() == text) impl.throw_failure(decode_failure(frame->payload));
        return false;
      }
      if (wait_ready(fd, POLLIN, Deadline::earlier(deadline, Deadline::after(kRereadInterval)))) continue;
      if (read_invitation_() != text) return false;
    }
    reason_ = "it was reached, but waits for other ranks";
    return false;
  }

  std::nullptr_t nowhere(const std::string& reason) {
    reason_ = reason;
    return nullptr;
  }

  const int size_;
  const int rank_;
  const std::function<std::string()> read_invitation_;
  std::string reason_ = "it has left no invitation";
  Stopwatch waited_;
};

static void check_rank(int size, int rank) {
  if (size < 1 || rank < 0 || rank >= size)
    throw InvalidArgument(str("rank ", rank, " of ", size, ": ranks go from 0 to size - 1"));
}

// Rank 0 offers the addresses of the interface that the user has named. The others need theirs only later, between hosts; a
// name that is wrong is an error now, not a wait for a rank 0 that has found it out.
static void check_named_interface() { static_cast<void>(local_addresses()); }

// What was handed over directly cannot be stale: it is right, or the caller's mistake.
static void check_invitation(const std::string& text, int size) {
  try {
    const Whereabouts at = decode_invitation(text);
    if (at.size != static_cast<uint32_t>(size))
      throw InvalidArgument(str("the invitation is for ", at.size, " ranks, not ", size));
  } catch (const wire::Malformed& malformed) {
    throw InvalidArgument(malformed.what());
  }
}

std::shared_ptr<Control::Invitation> Control::invite(int size) { return std::make_shared<Invitation>(size); }

std::string Control::text_of(const Invitation& invitation) { return encode_invitation(invitation.whereabouts); }

std::unique_ptr<Control> Control::serve(std::shared_ptr<Invitation> invitation, Deadline deadline) {
  return std::unique_ptr<Control>(new Control(Host(*invitation).run(deadline)));
}

std::unique_ptr<Control> Control::join(int size, int rank, const std::string& invitation_text, Deadline deadline) {
  check_rank(size, rank);
  if (rank == 0) throw InvalidArgument("rank 0 serves its invitation; it does not join it");
  check_invitation(invitation_text, size);
  check_named_interface();
  Guest guest(size, rank, [&] { return invitation_text; });
  return std::unique_ptr<Control>(new Control(guest.run(deadline)));
}

std::unique_ptr<Control> Control::meet(int size, int rank, Store& store, const std::string& key, Deadline deadline) {
  check_rank(size, rank);
  if (rank > 0) {
    check_named_interface();
    Guest guest(size, rank, [&] { return store.try_get(key, deadline); });
    return std::unique_ptr<Control>(new Control(guest.run(deadline)));
  }
  std::shared_ptr<Invitation> invitation = invite(size);
  if (size > 1) store.set(key, text_of(*invitation));
  return serve(std::move(invitation), deadline);
}

}  // namespace trireme::ccl
