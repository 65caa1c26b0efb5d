// The star of control connections through rank 0. Joining is in meeting.cpp.
#include <poll.h>

#include <algorithm>
#include <cerrno>

#include "trireme/ccl/bootstrap/control_impl.h"
#include "trireme/ccl/bootstrap/socket.h"
#include "trireme/ccl/bootstrap/wire.h"

namespace trireme::ccl {

namespace {

constexpr size_t kMaxContributionBytes = 64 * 1024;

std::string encode_all(const std::vector<std::string>& contributions) {
  wire::Writer out;
  for (const std::string& contribution : contributions) out.string(contribution);
  return out.take();
}

}  // namespace

std::vector<std::string> decode_contributions(std::string_view payload, int size) {
  std::vector<std::string> contributions;
  wire::Reader in(payload);
  for (int rank = 0; rank < size; ++rank) contributions.emplace_back(in.string(kMaxContributionBytes));
  in.expect_end();
  return contributions;
}

std::string encode_failure(const Failure& failure) {
  wire::Writer out;
  out.integer(static_cast<uint32_t>(failure.lost_rank));
  out.string(failure.reason);
  return out.take();
}

Failure decode_failure(std::string_view payload) {
  wire::Reader in(payload);
  Failure failure;
  failure.lost_rank = static_cast<int>(in.integer<uint32_t>());
  failure.reason = wire::printable(in.string(kMaxFailureBytes), kMaxFailureBytes);
  in.expect_end();
  return failure;
}

std::string list_ranks(const std::vector<int>& ranks) {
  constexpr size_t kShown = 16;
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < std::min(ranks.size(), kShown); ++i) text += str(i == 0 ? "" : ", ", ranks[i]);
  if (ranks.size() > kShown) text += str(" and ", ranks.size() - kShown, " more");
  return text;
}

std::vector<std::string> Control::Impl::allgather(const std::string& mine, Deadline deadline) {
  if (mine.size() > kMaxContributionBytes) {
    throw InvalidArgument(str("rank ", rank, ": allgather takes at most 64 KiB of each rank, not ", mine.size(), " bytes"));
  }
  if (size == 1) return {mine};
  ++gathers;
  return rank == 0 ? gather_and_share(mine, deadline) : contribute(mine, deadline);
}

std::vector<std::string> Control::Impl::gather_and_share(const std::string& mine, Deadline deadline) {
  try {
    std::vector<std::string> all = gather(mine, deadline);
    const std::string frame = encode_frame(kShared, encode_all(all));
    for (int peer = 1; peer < size; ++peer) send_to(peer, frame, deadline);
    return all;
  } catch (const PeerLost& lost) {
    tell_others({lost.rank(), lost.what()});
    throw;
  } catch (const Error& error) {
    tell_others({Failure::kNobody, error.what()});
    throw;
  }
}

std::vector<std::string> Control::Impl::gather(const std::string& mine, Deadline deadline) {
  std::vector<std::string> all(static_cast<size_t>(size));
  all[0] = mine;
  std::vector<FrameAssembler> assemblers(static_cast<size_t>(size), FrameAssembler(kMaxContributionBytes));
  std::vector<int> missing;
  for (int peer = 1; peer < size; ++peer) missing.push_back(peer);
  while (!missing.empty()) {
    std::erase_if(missing, [&](int peer) {
      auto frame = receive_from(peer, assemblers[static_cast<size_t>(peer)]);
      if (frame) all[static_cast<size_t>(peer)] = std::move(frame->payload);
      return frame.has_value();
    });
    if (!missing.empty() && !wait_for_any(missing, deadline)) {
      throw Timeout(str("rank 0: ", what(), ": no word from ", list_ranks(missing),
                        " in time; is the program there stopped or slow to start?"));
    }
  }
  return all;
}

std::optional<Frame> Control::Impl::receive_from(int peer, FrameAssembler& assembler) {
  try {
    auto frame = receive_some(connection_to(peer), assembler);
    if (frame && frame->kind != kContribution) throw wire::Malformed("an unexpected message");
    return frame;
  } catch (const IoError& error) {
    throw lost(peer, error);
  }
}

bool Control::Impl::wait_for_any(const std::vector<int>& peers, Deadline deadline) const {
  std::vector<pollfd> entries;
  for (int peer : peers) entries.push_back({connection_to(peer), POLLIN, 0});
  while (!deadline.passed()) {
    int ready = ::poll(entries.data(), entries.size(), deadline.left_ms(1 << 30));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) throw IoError(errno_message("poll", errno));
  }
  return false;
}

std::vector<std::string> Control::Impl::contribute(const std::string& mine, Deadline deadline) {
  send_to(0, encode_frame(kContribution, mine), deadline);
  const Frame frame = receive_answer(deadline);
  try {
    if (frame.kind == kFailure) throw_failure(decode_failure(frame.payload));
    if (frame.kind != kShared) throw wire::Malformed("an unexpected message");
    return decode_contributions(frame.payload, size);
  } catch (const wire::Malformed& error) {
    throw lost(0, error);
  }
}

Frame Control::Impl::receive_answer(Deadline deadline) {
  const size_t max_bytes = static_cast<size_t>(size) * (4 + kMaxContributionBytes);
  try {
    return receive_frame(connection_to(0), max_bytes, deadline);
  } catch (const IoError& error) {
    throw lost(0, error);
  } catch (const Timeout&) {
    throw Timeout(
        str("rank ", rank, ": ", what(), ": no word from rank 0 in time; it waits for another rank, or it is stopped"));
  }
}

void Control::Impl::send_to(int peer, const std::string& frame, Deadline deadline) {
  try {
    send_all(connection_to(peer), frame, deadline);
  } catch (const IoError& error) {
    throw lost(peer, error);
  } catch (const Timeout&) {
    throw Timeout(
        str("rank ", rank, ": ", what(), ": ", list_ranks({peer}), " takes no message; is the program there stopped?"));
  }
}

void Control::Impl::tell_others(const Failure& failure) {
  const std::string frame =
      encode_frame(kFailure, encode_failure({failure.lost_rank, failure.reason.substr(0, kMaxFailureBytes)}));
  for (int peer = 1; peer < size; ++peer) {
    try {
      if (peer != failure.lost_rank && connections[static_cast<size_t>(peer)]) send_some(connection_to(peer), frame);
    } catch (const IoError&) {  // it will see for itself
    }
  }
}

PeerLost Control::Impl::lost(int peer, const Error& cause) const {
  return PeerLost(peer, str("rank ", rank, ": ", what(), ": lost ", list_ranks({peer}), ": ", cause.what(),
                            "; its process has ended or its host is cut off"));
}

void Control::Impl::throw_failure(const Failure& failure) const {
  const std::string message = str("rank ", rank, ": ", what(), ": ", failure.reason);
  if (failure.lost_rank == Failure::kNobody) throw Timeout(message);
  throw PeerLost(failure.lost_rank, message);
}

std::string Control::Impl::what() const { return gathers == 0 ? "joining" : str("bootstrap allgather #", gathers); }

int Control::Impl::connection_to(int peer) const {
  if (peer < 0 || peer >= size || peer == rank) return -1;
  return connections[static_cast<size_t>(peer)].get();
}

Control::Control(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Control::~Control() = default;

int Control::rank() const { return impl_->rank; }
int Control::size() const { return impl_->size; }
const JobId& Control::job() const { return impl_->job; }
const Secret& Control::secret() const { return impl_->secret; }
std::string Control::my_address() const { return impl_->my_address; }
int Control::connection_to(int rank) const { return impl_->connection_to(rank); }

std::vector<std::string> Control::allgather(const std::string& mine, Deadline deadline) {
  return impl_->allgather(mine, deadline);
}

}  // namespace trireme::ccl
