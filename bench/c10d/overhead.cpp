// What the C++ backend adds to the library: allreduce in place, on two ranks of this host, by ProcessGroupCCL and by the communicator below it. Of 8 B in
// one tensor, and of a bucket of DDP's in memory that each of them has allocated. The two take turns, call by call; both answers are checked first. Prints
// a line of JSON for each size.
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
constexpr int kRanks = 2;
constexpr int64_t kBucketBytes = 25 << 20;  // DDP's bucket_cap_mb

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
  auto middle = times.begin() + static_cast<long>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  return *middle;
}

void compare(const char* kind, ProcessGroupCCL& group, trireme::ccl::Communicator& communicator, const at::Tensor& backends, const at::Tensor& librarys,
             int calls) {
  std::vector<at::Tensor> tensors{backends};
  c10d::AllreduceOptions options;
  options.asyncOp = false;
  auto by_the_backend = [&] { group.allreduce(tensors, options)->wait(kNoTimeout); };
  auto by_the_library = [&] {
    trireme::ccl::Operation op;
    op.kind = trireme::ccl::OpKind::allreduce;
    op.type = trireme::ccl::DataType::float32;
    op.count = static_cast<size_t>(librarys.numel());
    op.send_buffer = op.recv_buffer = librarys.data_ptr();
    op.caller_waits = true;
    communicator.submit(std::move(op)).wait();
  };
  for (auto [tensor, call] : {std::pair<at::Tensor, std::function<void()>>(backends, by_the_backend), {librarys, by_the_library}}) {
    tensor.fill_(1);
    call();
    TORCH_CHECK(tensor.eq(kRanks).all().item<bool>(), "a wrong sum");
    tensor.zero_();  // sums of it must not overflow while it is timed
  }
  std::vector<double> backend_us, library_us;
  for (int call = -calls / 40; call < calls; ++call) {
    const double library = time_us(by_the_library), backend = time_us(by_the_backend);
    if (call < 0) continue;
    library_us.push_back(library);
    backend_us.push_back(backend);
  }
  const double library = median(library_us), backend = median(backend_us);
  if (group.getRank() == 0) {
    std::printf("{\"kind\": \"%s\", \"bytes\": %zu, \"ranks\": %d, \"library_us\": %.2f, \"backend_us\": %.2f, \"added_us\": %.2f}\n", kind, backends.nbytes(),
                kRanks, library, backend, backend - library);
  }
}

int run(const std::string& path, int rank) {
  ProcessGroupCCL group(c10::make_intrusive<c10d::FileStore>(path, kRanks), rank, kRanks);
  auto communicator = connect(path, rank);
  const at::Tensor small = at::ones({2});
  compare("overhead", group, *communicator, small, small, 20000);
  const auto floats = static_cast<long>(kBucketBytes / sizeof(float));
  const at::Tensor allocated = at::from_blob(
      trireme::ccl::Communicator::allocate_shared(kBucketBytes), {floats}, [](void* data) { trireme::ccl::Communicator::release_shared(data); }, at::kFloat);
  compare("bucket", group, *communicator, group.allocateTensor(floats, at::kFloat), allocated, 200);
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
