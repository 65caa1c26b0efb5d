// One attempt at a proved connection, for callers that have something better to do between attempts than to wait.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trireme/ccl/bootstrap/control.h"

namespace trireme::ccl {

struct Attempt {
  UniqueFd connection;  // or nothing:
  std::string reason;   // what went wrong at each address
  // The listener that we looked for was there and said no.
  bool refused = false;
};

// Tries each address once, waiting at most `patience` for each to connect.
Attempt try_connect_proved(const std::vector<std::string>& addresses, uint16_t port, const Secret& secret,
                           const Claim& claim, std::chrono::milliseconds patience, Deadline deadline);

}  // namespace trireme::ccl
