#include "trireme/ccl/node/local_socket.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstddef>
#include <cstring>

#include "trireme/base/error.h"
#include "trireme/ccl/bootstrap/random.h"
#include "trireme/ccl/bootstrap/wire.h"

namespace trireme::ccl {
namespace {

constexpr size_t kMaxFds = 4;
constexpr size_t kMaxBytes = 1024;

// An abstract address: a zero byte, then the name.
socklen_t make_address(const std::string& name, sockaddr_un& address) {
  address = {};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
}

std::string random_name() { return "trireme-" + wire::to_hex(random<std::array<uint8_t, 16>>()); }

void take_ancillary(msghdr& header, LocalMessage& message) {
  for (cmsghdr* control = CMSG_FIRSTHDR(&header); control; control = CMSG_NXTHDR(&header, control)) {
    if (control->cmsg_level != SOL_SOCKET) continue;
    if (control->cmsg_type == SCM_RIGHTS) {
      size_t count = (control->cmsg_len - CMSG_LEN(0)) / sizeof(int);
      for (size_t i = 0; i < count; ++i) {
        int fd;
        std::memcpy(&fd, CMSG_DATA(control) + i * sizeof(int), sizeof(int));
        message.fds.emplace_back(fd);
      }
    } else if (control->cmsg_type == SCM_CREDENTIALS) {
      ucred credentials{};
      std::memcpy(&credentials, CMSG_DATA(control), sizeof credentials);
      message.sender = credentials.pid;
    }
  }
}

}  // namespace

LocalSocket LocalSocket::open() {
  LocalSocket local;
  local.fd_ = ProcessFd(UniqueFd(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)));
  if (!local.fd_) throw IoError(errno_message("opening a UNIX socket", errno));
  int on = 1;
  setsockopt(local.fd_.get(), SOL_SOCKET, SO_PASSCRED, &on, sizeof on);
  local.name_ = random_name();
  sockaddr_un address;
  socklen_t length = make_address(local.name_, address);
  if (bind(local.fd_.get(), reinterpret_cast<sockaddr*>(&address), length) != 0) {
    throw IoError(errno_message("binding a UNIX socket", errno));
  }
  return local;
}

LocalSocket::Sent LocalSocket::try_send(const std::string& to, const std::string& bytes, std::span<const int> fds) {
  sockaddr_un address;
  socklen_t length = make_address(to, address);
  iovec piece{const_cast<char*>(bytes.data()), bytes.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(kMaxFds * sizeof(int))] = {};
  msghdr header{};
  header.msg_name = &address;
  header.msg_namelen = length;
  header.msg_iov = &piece;
  header.msg_iovlen = 1;
  if (!fds.empty()) {
    header.msg_control = control;
    header.msg_controllen = CMSG_SPACE(fds.size_bytes());
    cmsghdr* rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(fds.size_bytes());
    std::memcpy(CMSG_DATA(rights), fds.data(), fds.size_bytes());
  }
  if (sendmsg(fd_.get(), &header, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0) return Sent::yes;
  if (errno == EAGAIN || errno == ENOBUFS) return Sent::queue_full;
  if (errno == ECONNREFUSED || errno == ENOENT) return Sent::nobody_there;
  throw IoError(errno_message("handing a descriptor to a rank of this host", errno));
}

std::optional<LocalMessage> LocalSocket::receive(Deadline deadline) {
  for (;;) {
    LocalMessage message;
    message.bytes.resize(kMaxBytes);
    iovec piece{message.bytes.data(), kMaxBytes};
    alignas(cmsghdr) char control[CMSG_SPACE(kMaxFds * sizeof(int)) + CMSG_SPACE(sizeof(ucred))] = {};
    msghdr header{};
    header.msg_iov = &piece;
    header.msg_iovlen = 1;
    header.msg_control = control;
    header.msg_controllen = sizeof control;
    ssize_t received = recvmsg(fd_.get(), &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (received >= 0) {
      message.bytes.resize(static_cast<size_t>(received));
      take_ancillary(header, message);
      return message;
    }
    if (errno != EAGAIN && errno != EINTR) throw IoError(errno_message("receiving from a rank of this host", errno));
    if (deadline.passed()) return std::nullopt;
    pollfd waiting{fd_.get(), POLLIN, 0};
    ::poll(&waiting, 1, deadline.left_ms(1000));
  }
}

}  // namespace trireme::ccl
