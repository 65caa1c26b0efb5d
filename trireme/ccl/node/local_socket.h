// A UNIX datagram socket with a random abstract name: how ranks of one host hand each other descriptors. Leaves no file behind.
#pragma once

#include <sys/types.h>

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trireme/base/deadline.h"
#include "trireme/base/fd.h"
#include "trireme/ccl/bootstrap/forked_child.h"

namespace trireme::ccl {

struct LocalMessage {
  std::string bytes;
  std::vector<UniqueFd> fds;
  pid_t sender = 0;  // as the kernel vouches for it, in this process's pid namespace; 0 where it is not visible
};

// One thread at a time.
class LocalSocket {
 public:
  LocalSocket() = default;
  static LocalSocket open();
  explicit operator bool() const { return static_cast<bool>(fd_); }
  const std::string& name() const { return name_; }

  // nobody_there: no socket of that name is open within reach.
  enum class Sent { yes, queue_full, nobody_there };
  Sent try_send(const std::string& to, const std::string& bytes, std::span<const int> fds);
  // At most 1 KiB and 4 descriptors; nothing when the deadline passes.
  std::optional<LocalMessage> receive(Deadline deadline);

 private:
  ProcessFd fd_;
  std::string name_;
};

}  // namespace trireme::ccl
