#include "trireme/ccl/bootstrap/socket.h"

#include <arpa/inet.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace trireme::ccl {

namespace {

// Long enough for a burst of every rank of a large job; the kernel cuts it to net.core.somaxconn.
constexpr int kBacklog = 4096;

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
};

SocketAddress parse(const std::string& address, uint16_t port) {
  SocketAddress out;
  auto* v4 = reinterpret_cast<sockaddr_in*>(&out.storage);
  auto* v6 = reinterpret_cast<sockaddr_in6*>(&out.storage);
  if (::inet_pton(AF_INET, address.c_str(), &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
    v4->sin_port = htons(port);
    out.length = sizeof *v4;
  } else if (::inet_pton(AF_INET6, address.c_str(), &v6->sin6_addr) == 1) {
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(port);
    out.length = sizeof *v6;
  } else {
    throw InvalidArgument(str("'", address, "' is not a numeric IPv4 or IPv6 address"));
  }
  return out;
}

UniqueFd make_socket(int family) {
  UniqueFd fd(::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) throw IoError(errno_message("socket", errno));
  return fd;
}

bool set_option(int fd, int level, int name, int value) { return ::setsockopt(fd, level, name, &value, sizeof value) == 0; }

bool would_block(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == EINTR; }

SocketAddress name_of(int fd) {
  SocketAddress name;
  name.length = sizeof name.storage;
  if (::getsockname(fd, name.get(), &name.length) != 0) throw IoError(errno_message("getsockname", errno));
  return name;
}

UniqueFd bind_and_listen(UniqueFd fd, const SocketAddress& at, const std::string& what) {
  set_option(fd.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  if (::bind(fd.get(), at.get(), at.length) != 0) throw IoError(errno_message("cannot bind to " + what, errno));
  if (::listen(fd.get(), kBacklog) != 0) throw IoError(errno_message("cannot listen on " + what, errno));
  return fd;
}

}  // namespace

bool wait_ready(int fd, short events, Deadline deadline) {
  constexpr int kCapMs = 1 << 30;
  for (;;) {
    pollfd entry{fd, events, 0};
    int ready = ::poll(&entry, 1, deadline.left_ms(kCapMs));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) throw IoError(errno_message("poll", errno));
    if (deadline.passed()) return false;
  }
}

UniqueFd connect_to(const std::string& address, uint16_t port, Deadline deadline) {
  const std::string what = str("cannot connect to ", address, " port ", port);
  const SocketAddress to = parse(address, port);
  UniqueFd fd = make_socket(to.storage.ss_family);
  if (::connect(fd.get(), to.get(), to.length) != 0 && errno != EINPROGRESS && errno != EINTR) {
    throw IoError(errno_message(what, errno));
  }
  if (!wait_ready(fd.get(), POLLOUT, deadline)) throw Timeout(what + ": no answer in time");
  int error = 0;
  socklen_t length = sizeof error;
  if (::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &length) != 0) error = errno;
  if (error != 0) throw IoError(errno_message(what, error));
  return fd;
}

UniqueFd listen_on(const std::string& address, uint16_t port) {
  if (!address.empty()) {
    const SocketAddress at = parse(address, port);
    return bind_and_listen(make_socket(at.storage.ss_family), at, str(address, " port ", port));
  }
  // One socket for both families; a kernel without IPv6 gets an IPv4 one.
  try {
    UniqueFd fd = make_socket(AF_INET6);
    if (set_option(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, 0))
      return bind_and_listen(std::move(fd), parse("::", port), str("port ", port));
  } catch (const IoError&) {
  }
  return bind_and_listen(make_socket(AF_INET), parse("0.0.0.0", port), str("port ", port));
}

size_t send_some(int fd, std::string_view data) {
  ssize_t sent = ::send(fd, data.data(), data.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent >= 0) return static_cast<size_t>(sent);
  if (would_block(errno)) return 0;
  throw ConnectionLost(errno_message("send", errno));
}

size_t recv_some(int fd, void* data, size_t bytes) {
  if (bytes == 0) return 0;
  ssize_t got = ::recv(fd, data, bytes, MSG_DONTWAIT);
  if (got > 0) return static_cast<size_t>(got);
  if (got == 0) throw ConnectionLost("the peer closed the connection");
  if (would_block(errno)) return 0;
  throw ConnectionLost(errno_message("receive", errno));
}

void send_all(int fd, std::string_view data, Deadline deadline) {
  while (!data.empty()) {
    size_t sent = send_some(fd, data);
    data.remove_prefix(sent);
    if (sent == 0 && !wait_ready(fd, POLLOUT, deadline))
      throw Timeout(str("send: ", data.size(), " bytes not taken in time"));
  }
}

void recv_all(int fd, void* data, size_t bytes, Deadline deadline) {
  auto* p = static_cast<char*>(data);
  while (bytes > 0) {
    size_t got = recv_some(fd, p, bytes);
    p += got, bytes -= got;
    if (got == 0 && !wait_ready(fd, POLLIN, deadline)) throw Timeout(str("receive: ", bytes, " bytes did not come in time"));
  }
}

std::string recv_string(int fd, size_t bytes, Deadline deadline) {
  std::string data(bytes, '\0');
  recv_all(fd, data.data(), bytes, deadline);
  return data;
}

bool is_lost(int fd) {
  pollfd entry{fd, POLLRDHUP, 0};
  return ::poll(&entry, 1, 0) > 0;  // POLLRDHUP, POLLHUP, POLLERR or POLLNVAL: nothing else was asked for
}

bool has_unacknowledged(int fd) {
  int bytes = 0;
  pollfd entry{fd, 0, 0};  // POLLHUP and POLLERR are always told
  return ::ioctl(fd, SIOCOUTQ, &bytes) == 0 && bytes > 0 && ::poll(&entry, 1, 0) == 0;
}

// Some milliseconds' worth at 1 Gbit/s; on faster links the driver is back to write more long before it is sent.
static constexpr int kBulkUnsentBytes = 256 << 10;
// A lost probe must not end a connection that is idle. On a light one something is sent all the time.
static constexpr int kLeastBulkProbes = 3;

// The kernel counts from where it first sends something again: up to a heartbeat after the last word (an eighth of the time, see
// peers.cpp), and 400 ms, for its loss probe and then its RTO, of 200 ms each. 200 ms are left for the news to spread.
static int user_timeout(int timeout_ms) { return std::max({1, timeout_ms / 2, timeout_ms - timeout_ms / 8 - 600}); }

void tune_connection(int fd, std::chrono::milliseconds peer_timeout, Traffic traffic) {
  const int timeout_ms = static_cast<int>(std::clamp<long long>(peer_timeout.count(), 1, 1 << 30));
  // Whole seconds are the kernel's unit. Probes start at a third of the time and go out every second (a long timeout: up to
  // 127 of them), so a living peer's answer has many chances to arrive and the end is seen soon after the timeout.
  const int timeout_s = std::max(2, (timeout_ms + 999) / 1000);
  const int idle_s = std::clamp(timeout_s / 3, 1, 32767);
  // What a bulk connection's kernel holds back unsent is what a short message queued after it waits for.
  const bool bulk = traffic == Traffic::bulk;
  const int probes = std::clamp(timeout_s - idle_s, bulk ? kLeastBulkProbes : 1, 127);
  const int interval_s = std::max(1, (timeout_s - idle_s + probes - 1) / probes);
  bool ok = set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1) && set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1) &&
            set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, idle_s) && set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, interval_s) &&
            set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, probes) &&
            set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, bulk ? 0 : user_timeout(timeout_ms)) &&
            (!bulk || set_option(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, kBulkUnsentBytes));
  if (!ok) throw IoError(errno_message("setsockopt", errno));
}

static std::string address_text(const SocketAddress& name) {
  char text[INET6_ADDRSTRLEN] = "";
  if (name.storage.ss_family == AF_INET) {
    ::inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(&name.storage)->sin_addr, text, sizeof text);
    return text;
  }
  const in6_addr& v6 = reinterpret_cast<const sockaddr_in6*>(&name.storage)->sin6_addr;
  if (IN6_IS_ADDR_V4MAPPED(&v6)) {
    ::inet_ntop(AF_INET, v6.s6_addr + 12, text, sizeof text);
  } else {
    ::inet_ntop(AF_INET6, &v6, text, sizeof text);
  }
  return text;
}

std::string local_address(int fd) { return address_text(name_of(fd)); }

std::string peer_address(int fd) {
  SocketAddress name;
  name.length = sizeof name.storage;
  return ::getpeername(fd, name.get(), &name.length) == 0 ? address_text(name) : "";
}

uint16_t local_port(int fd) {
  const SocketAddress name = name_of(fd);
  return ntohs(name.storage.ss_family == AF_INET ? reinterpret_cast<const sockaddr_in*>(&name.storage)->sin_port
                                                 : reinterpret_cast<const sockaddr_in6*>(&name.storage)->sin6_port);
}

}  // namespace trireme::ccl
