// What the C++ backend adds to the library: allreduce of 8 B, in place, on two ranks of this host, by ProcessGroupCCL and by the communicator below it.
// The two take turns, call by call; both answers are checked first. Prints one line of JSON.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <vector>

#include "trireme/torch_ext/process_group/process_group_ccl.h"

namespace {

using trireme::torch_ext::ProcessGroupCCL;
using Clock = std::chrono::steady_clock;
constexpr int kRanks = 2, kElements = 2, kWarmUp = 500, kCalls = 20000;

std::shared_ptr<trireme::ccl::Communicator> connect(const std::string& path, int rank) {
  auto store = c10::make_intrusive<c10d::FileStore>(path, kRanks);
  auto get = [store](const std::string& key) {
    if (!store->check({key})) return std::string();
    std::vector<uint8_t> value = store->get(key);
    return std::string(value.begin(), value.end());
  };
  auto set = [store](const std::string& key, const std::string& value) { store->set(key, std::vector<uint8_t>(value.begin(), value.end())); };
  trireme::ccl::CommunicatorOptions options;
  options.name = "library";
  return trireme::ccl::Communicator::create(kRanks, rank, trireme::ccl::make_callback_store(get, set), options);
}

double time_us(const std::function<void()>& call) {
  const auto start = Clock::now();
  call();
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

double median(std::vector<double>& times) {
  std::nth_element(times.begin(), times.begin() + kCalls / 2, times.end());
  return times[kCalls / 2];
}

int run(const std::string& path, int rank) {
  ProcessGroupCCL group(c10::make_intrusive<c10d::FileStore>(path, kRanks), rank, kRanks);
  auto communicator = connect(path, rank);
  std::vector<at::Tensor> tensors{at::ones({kElements})};
  c10d::AllreduceOptions options;
  options.asyncOp = false;
  auto by_the_backend = [&] { group.allreduce(tensors, options)->wait(kNoTimeout); };
  auto by_the_library = [&] {
    trireme::ccl::Operation op;
    op.kind = trireme::ccl::OpKind::allreduce;
    op.type = trireme::ccl::DataType::float32;
    op.count = kElements;
    op.send_buffer = op.recv_buffer = tensors[0].data_ptr();
    op.caller_waits = true;
    communicator->submit(std::move(op)).wait();
  };
  by_the_backend();
  by_the_library();
  TORCH_CHECK(tensors[0].eq(kRanks * kRanks).all().item<bool>(), "a wrong sum: ", tensors[0]);
  tensors[0].zero_();  // sums of it must not overflow while it is timed
  std::vector<double> backend_us, library_us;
  for (int call = -kWarmUp; call < kCalls; ++call) {
    const double library = time_us(by_the_library), backend = time_us(by_the_backend);
    if (call < 0) continue;
    library_us.push_back(library);
    backend_us.push_back(backend);
  }
  const double library = median(library_us), backend = median(backend_us);
  if (rank == 0) {
    std::printf("{\"kind\": \"overhead\", \"bytes\": 8, \"ranks\": 2, \"library_us\": %.2f, \"backend_us\": %.2f, \"added_us\": %.2f}\n", library, backend,
                backend - library);
  }
  return 0;
}

}  // namespace

int main() {
  char path[] = "/tmp/trireme_overhead_XXXXXX";
  close(mkstemp(path));
  const pid_t child = fork();
  const int code = run(path, child == 0 ? 1 : 0);
  if (child == 0) _exit(code);
  int status = 0;
  waitpid(child, &status, 0);
  unlink(path);
  return status == 0 ? code : 1;
}
