#include "trireme/ccl/fabric/tcp/tcp_stream.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "trireme/base/error.h"
#include "trireme/ccl/bootstrap/socket.h"

namespace trireme::ccl {
namespace {

// Requests below this go through the buffer; larger ones straight to where they belong.
constexpr size_t kDirectBytes = 4096;

bool would_block(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == EINTR; }

}  // namespace

size_t TcpStream::write(std::span<const iovec> pieces) {
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(pieces.data());
  message.msg_iovlen = pieces.size();
  ssize_t sent = sendmsg(fd_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent >= 0) return static_cast<size_t>(sent);
  if (would_block(errno)) return 0;
  throw ConnectionLost(errno_message("the connection broke", errno));
}

size_t TcpStream::read(std::span<const iovec> pieces) {
  size_t total = 0;
  for (const iovec& piece : pieces) {
    size_t got = take_buffered(piece);
    total += got;
    if (got < piece.iov_len) break;
  }
  return total;
}

size_t TcpStream::take_buffered(const iovec& piece) {
  if (piece.iov_len == 0) return 0;
  if (begin_ == end_ && piece.iov_len < kDirectBytes && !fill_buffer()) return 0;
  if (begin_ != end_) {
    size_t bytes = std::min(piece.iov_len, end_ - begin_);
    std::memcpy(piece.iov_base, buffer_.data() + begin_, bytes);
    begin_ += bytes;
    return bytes;
  }
  return recv_some(fd_.get(), piece.iov_base, piece.iov_len);
}

bool TcpStream::fill_buffer() {
  begin_ = 0;
  end_ = recv_some(fd_.get(), buffer_.data(), buffer_.size());
  return end_ != 0;
}

}  // namespace trireme::ccl
