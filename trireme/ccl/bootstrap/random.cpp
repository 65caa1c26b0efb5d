#include "trireme/ccl/bootstrap/random.h"

#include <sys/random.h>

#include <cerrno>

#include "trireme/base/error.h"

namespace trireme::ccl {

void fill_random(std::span<uint8_t> bytes) {
  while (!bytes.empty()) {
    ssize_t got = ::getrandom(bytes.data(), bytes.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw IoError(errno_message("getrandom", errno));
    bytes = bytes.subspan(static_cast<size_t>(got));
  }
}

}  // namespace trireme::ccl
