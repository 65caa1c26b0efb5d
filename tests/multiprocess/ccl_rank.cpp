// One rank of a job, for tests that kill, stop, cut off and overload ranks. Reads RANK, WORLD_SIZE and STORE (a path where
// rank 0 leaves the store's address); prints one line per event. What it does is told by its arguments:
//   --bytes N          allreduce this many bytes, over and over, until --seconds have passed (then "done", exit 0)
//   --timeout-ms N     the communicator's timeout
//   --fork-child       fork a child that does nothing but live for 60 s
//   --once-after MS    a single allreduce, begun after that long
//   --check            every result is checked
//   --shared           each operation has a new buffer of the library's shared memory
//   --no-pidfd         as on a kernel, or in a sandbox, that has no pidfd_open
//   --no-memfd RANK    as if that rank, of all, could make no shared memory
// A failure prints "failed after MS ms: TYPE: MESSAGE" (the time since the operation began) and exits 3.
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/multiprocess/meet.h"
#include "trireme/base/error.h"
#include "trireme/ccl/comm/communicator.h"

namespace trireme::ccl {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

struct Options {
  size_t bytes = 8;
  double seconds = 5;
  long timeout_ms = 0;
  bool fork_child = false;
  long once_after_ms = -1;
  bool check = false;
  bool shared = false;
  bool no_pidfd = false;
  int no_memfd = -1;
};

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    std::string name = argv[i];
    auto value = [&] { return std::strtod(argv[++i], nullptr); };
    if (name == "--bytes") options.bytes = static_cast<size_t>(value());
    else if (name == "--seconds") options.seconds = value();
    else if (name == "--timeout-ms") options.timeout_ms = static_cast<long>(value());
    else if (name == "--once-after") options.once_after_ms = static_cast<long>(value());
    else if (name == "--fork-child") options.fork_child = true;
    else if (name == "--check") options.check = true;
    else if (name == "--shared") options.shared = true;
    else if (name == "--no-pidfd") options.no_pidfd = true;
    else if (name == "--no-memfd") options.no_memfd = static_cast<int>(value());
    else throw InvalidArgument("unknown argument " + name);
  }
  return options;
}

void say(const std::string& line) {
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

std::string type_name(const std::exception& error) {
  if (dynamic_cast<const PeerLost*>(&error)) return "PeerLost";
  if (dynamic_cast<const Timeout*>(&error)) return "Timeout";
  if (dynamic_cast<const Aborted*>(&error)) return "Aborted";
  if (dynamic_cast<const IoError*>(&error)) return "IoError";
  return "Error";
}

// From now on `system_call` fails in this process, as one that the kernel does not have.
void refuse(unsigned system_call) {
  sock_filter program[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, system_call, 0, 1),
                           BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  sock_fprog filter{std::size(program), program};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0) {
    throw IoError(errno_message("refusing a system call", errno));
  }
}

// Where an operation finds its data: private memory, kept, or a buffer of shared memory, released when the next one is asked for.
class Buffer {
 public:
  Buffer(size_t count, bool shared) : shared_(shared), count_(count), kept_(shared ? 0 : count) {}
  ~Buffer() { release(); }
  std::span<float> next() {
    if (!shared_) return kept_;
    release();
    data_ = static_cast<float*>(Communicator::allocate_shared(count_ * sizeof(float)));
    return {data_, count_};
  }

 private:
  void release() { Communicator::release_shared(std::exchange(data_, nullptr)); }
  bool shared_;
  size_t count_;
  std::vector<float> kept_;
  float* data_ = nullptr;
};

int run(const Options& options) {
  Place place = place_from_environment();
  if (options.no_pidfd) refuse(SYS_pidfd_open);
  if (options.no_memfd == place.rank) refuse(SYS_memfd_create);
  auto store = meet(place);
  CommunicatorOptions comm_options;
  if (options.timeout_ms > 0) comm_options.timeout = milliseconds(options.timeout_ms);
  auto comm = Communicator::create(place.size, place.rank, store, comm_options);
  if (options.fork_child && fork() == 0) {
    sleep(60);
    _exit(0);
  }
  say("ready: " + comm->describe());
  if (options.once_after_ms >= 0) std::this_thread::sleep_for(milliseconds(options.once_after_ms));
  Buffer buffer(std::max<size_t>(1, options.bytes / 4), options.shared);
  Operation op;
  op.kind = OpKind::allreduce;
  op.type = DataType::float32;
  op.count = options.bytes / 4;
  auto end = Clock::now() + std::chrono::duration<double>(options.seconds);
  long count = 0;
  auto began = Clock::now();
  try {
    // All ranks must agree on when to stop: one element says whether somebody wants to.
    for (bool more = true; more; ++count) {
      std::span<float> data = buffer.next();
      op.send_buffer = op.recv_buffer = data.data();
      std::fill(data.begin(), data.end(), 1.0f);
      data[0] = Clock::now() < end && options.once_after_ms < 0 ? 1.0f : 0.0f;
      began = Clock::now();
      comm->submit(op).wait();
      more = data[0] == static_cast<float>(place.size);
      for (size_t i = 1; options.check && i < data.size(); ++i) {
        if (data[i] != static_cast<float>(place.size)) throw InternalError(str("wrong result at ", i));
      }
    }
  } catch (const Error& error) {
    auto took = std::chrono::duration_cast<milliseconds>(Clock::now() - began).count();
    say(str("failed after ", took, " ms: ", type_name(error), ": ", error.what()));
    return 3;
  }
  say(str("done: ", count, " operations"));
  return 0;
}

}  // namespace
}  // namespace trireme::ccl

int main(int argc, char** argv) {
  try {
    return trireme::ccl::run(trireme::ccl::parse(argc, argv));
  } catch (const std::exception& error) {
    std::printf("did not start: %s\n", error.what());
    return 4;
  }
}
