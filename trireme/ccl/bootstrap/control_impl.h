// The inside of Control, shared by the joining (meeting.cpp) and what follows it (control.cpp).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/ccl/bootstrap/control.h"
#include "trireme/ccl/bootstrap/forked_child.h"
#include "trireme/ccl/bootstrap/frame.h"

namespace trireme::ccl {

// Kinds of control frames.
inline constexpr uint8_t kStart = 1;         // rank 0 -> rank: everybody is there
inline constexpr uint8_t kContribution = 2;  // rank -> rank 0
inline constexpr uint8_t kShared = 3;        // rank 0 -> rank: every contribution, in rank order
inline constexpr uint8_t kFailure = 4;       // rank 0 -> rank: why rank 0 gives up, instead of kStart or kShared

inline constexpr size_t kMaxFailureBytes = 1024;
inline constexpr size_t kMaxFailureFrameBytes = 4 + 4 + kMaxFailureBytes;

// Why rank 0 gave up: without it the others would only see rank 0 go, and name the wrong rank.
struct Failure {
  static constexpr int kNobody = -1;
  int lost_rank = kNobody;
  std::string reason;
};

std::string encode_failure(const Failure& failure);
Failure decode_failure(std::string_view payload);
std::vector<std::string> decode_contributions(std::string_view payload, int size);

// "rank 3", "ranks 1, 2".
std::string list_ranks(const std::vector<int>& ranks);

class Control::Impl {
 public:
  Impl(int size, int rank, const JobId& job, const Secret& secret)
      : size(size), rank(rank), job(job), secret(secret), connections(static_cast<size_t>(size)) {}

  const int size;
  const int rank;
  const JobId job;
  const Secret secret;
  std::string my_address;
  std::vector<ProcessFd> connections;  // by rank; empty where there is none
  uint64_t gathers = 0;

  std::vector<std::string> allgather(const std::string& mine, Deadline deadline);
  int connection_to(int peer) const;
  // To every connected rank but the lost one, without waiting for any.
  void tell_others(const Failure& failure);
  [[noreturn]] void throw_failure(const Failure& failure) const;

 private:
  std::vector<std::string> gather_and_share(const std::string& mine, Deadline deadline);
  std::vector<std::string> gather(const std::string& mine, Deadline deadline);
  std::vector<std::string> contribute(const std::string& mine, Deadline deadline);
  Frame receive_answer(Deadline deadline);
  std::optional<Frame> receive_from(int peer, FrameAssembler& assembler);
  bool wait_for_any(const std::vector<int>& peers, Deadline deadline) const;
  void send_to(int peer, const std::string& frame, Deadline deadline);
  PeerLost lost(int peer, const Error& cause) const;
  std::string what() const;  // the present operation, for messages
};

}  // namespace trireme::ccl
