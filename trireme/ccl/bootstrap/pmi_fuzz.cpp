// A process manager that answers anything at all: the client gets through its whole dialogue or throws.
#include <sys/socket.h>

#include <algorithm>
#include <cstdlib>

#include "trireme/base/error.h"
#include "trireme/ccl/bootstrap/pmi_client.h"

namespace trireme::ccl {

// All answers are there before the first question; then the channel ends.
static void run_dialogue(const uint8_t* data, size_t bytes) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) std::abort();
  UniqueFd manager(ends[1]);
  UniqueFd channel(ends[0]);
  ::send(manager.get(), data, std::min<size_t>(bytes, 65536), MSG_DONTWAIT);
  ::shutdown(manager.get(), SHUT_WR);

  const Deadline deadline = Deadline::after(std::chrono::seconds(1));
  PmiClient client(std::move(channel), "1", deadline);
  client.put("key", "value", deadline);
  client.barrier(deadline);
  client.get("key", deadline);
}

}  // namespace trireme::ccl

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  try {
    trireme::ccl::run_dialogue(data, bytes);
  } catch (const trireme::IoError&) {
  }
  return 0;
}
