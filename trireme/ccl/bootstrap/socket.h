// TCP sockets with deadlines. Every descriptor made here is non-blocking and close-on-exec; waiting is done by poll(), so
// that a deadline always holds. Nothing here raises SIGPIPE.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "trireme/base/deadline.h"
#include "trireme/base/error.h"
#include "trireme/base/fd.h"

namespace trireme::ccl {

// The peer closed the connection, or the kernel gave it up.
class ConnectionLost : public IoError {
 public:
  using IoError::IoError;
};

// Until one of `events` (or an error, which the next call on the descriptor reports) is there. False when the deadline
// passes first.
bool wait_ready(int fd, short events, Deadline deadline);

// `address` is numeric, IPv4 or IPv6. Throws IoError or Timeout naming address and cause.
UniqueFd connect_to(const std::string& address, uint16_t port, Deadline deadline);
// "" listens on every address, IPv6 and IPv4; port 0 takes a free one.
UniqueFd listen_on(const std::string& address, uint16_t port);

// All of it or an exception: Timeout, or ConnectionLost.
void send_all(int fd, std::string_view data, Deadline deadline);
void recv_all(int fd, void* data, size_t bytes, Deadline deadline);
std::string recv_string(int fd, size_t bytes, Deadline deadline);

// One try, without waiting: the number of bytes moved, 0 when the socket is not ready. Throws ConnectionLost.
size_t send_some(int fd, std::string_view data);
size_t recv_some(int fd, void* data, size_t bytes);

// Whether the peer has closed it or it has failed. Bytes that were not read yet stay where they are.
bool is_lost(int fd);
// Whether bytes that were sent have not come to the peer's host yet. No longer so when the connection has failed.
bool has_unacknowledged(int fd);

// What the connection is for decides how a silent cut is seen.
//   light  short messages that the peer reads soon. Keepalive when idle, TCP_USER_TIMEOUT while bytes are unacknowledged: a cut is seen within
//          `peer_timeout` (from 2 s on) of the last word, and not before two thirds of it. With a timeout of few seconds there is one
//          probe: the user sends something now and then.
//   bulk   may fill the peer's window. TCP_USER_TIMEOUT would also end a connection whose peer is stopped but alive (the kernel counts
//          the time the window stays closed), so only keepalive is set: a cut is seen after about `peer_timeout`, at least 4 s, and not
//          before; in mid-transfer it must be seen on a light connection beside it. Little waits in the kernel unsent, so that a short
//          message gets through between long ones.
enum class Traffic { light, bulk };
void tune_connection(int fd, std::chrono::milliseconds peer_timeout, Traffic traffic = Traffic::light);

// The numeric address of this end, IPv4 written as such also on an IPv6 socket.
std::string local_address(int fd);
// The same of the other end, "" where the connection is lost.
std::string peer_address(int fd);
uint16_t local_port(int fd);

}  // namespace trireme::ccl
