// Tries what ranks of one host do to each other: a child reads this process's memory.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

#include "trireme/base/error.h"
#include "trireme/base/fd.h"
#include "trireme/ccl/node/peer_memory.h"
#include "trireme/trainer/info/info.h"

namespace trireme::trainer {
namespace {

constexpr int kPatienceMs = 5000;

// The child's word arrives here; nothing comes if it died.
bool read_word(int fd) {
  pollfd waiting{fd, POLLIN, 0};
  int ready = 0;
  do ready = ::poll(&waiting, 1, kPatienceMs);
  while (ready < 0 && errno == EINTR);
  char word = 0;
  return ready == 1 && ::read(fd, &word, 1) == 1 && word == 'y';
}

}  // namespace

bool direct_reads_are_permitted() {
  // Fresh at each call, so that the child cannot know it from before.
  volatile uint64_t nonce = static_cast<uint64_t>(::getpid()) << 32 ^ 0x7472697265ULL;
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw IoError(errno_message("pipe", errno));
  UniqueFd reading(ends[0]), writing(ends[1]);
  const pid_t parent = ::getpid();
  // Where Yama guards processes (ptrace_scope 1), a rank permits its peers by name; so does this process, for the moment.
  ::prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
  const pid_t child = ::fork();
  if (child < 0) throw IoError(errno_message("fork", errno));
  if (child == 0) {
    const uint64_t expected = nonce;  // this process's own copy
    const bool works = ccl::direct_read_works(parent, reinterpret_cast<uint64_t>(&nonce), expected);
    const char word = works ? 'y' : 'n';
    ::_exit(::write(writing.get(), &word, 1) == 1 ? 0 : 1);
  }
  writing.reset();
  const bool works = read_word(reading.get());
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  ::prctl(PR_SET_PTRACER, 0, 0, 0, 0);
  return works;
}

}  // namespace trireme::trainer
