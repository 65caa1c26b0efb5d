// What rank 0 hands to the others: where it listens, for which job, and the secret that both sides prove.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/ccl/bootstrap/control.h"

namespace trireme::ccl {

inline constexpr size_t kMaxInvitationBytes = 512;

struct Whereabouts {
  JobId job{};
  Secret secret{};
  uint32_t size = 0;
  uint16_t port = 0;
  std::vector<std::string> addresses;
};

// "trireme-1 <job> <secret> <size> <port> <address>,<address>...": at most kMaxInvitationBytes, with as many addresses as
// fit.
std::string encode_invitation(const Whereabouts& whereabouts);
// Throws wire::Malformed for anything else.
Whereabouts decode_invitation(std::string_view text);

// Rank 0's half: the same, and the listener. A job of one rank has none.
class Control::Invitation {
 public:
  explicit Invitation(int size);

  Whereabouts whereabouts;
  std::unique_ptr<AuthListener> listener;
};

}  // namespace trireme::ccl
