// `trireme bench`: how fast the collectives are between the processes of this job, through the backend that training uses.
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <iomanip>
#include <iostream>

#include "trireme/base/error.h"
#include "trireme/trainer/app/commands.h"
#include "trireme/trainer/json/json.h"
#include "trireme/trainer/options/small_options.h"
#include "trireme/trainer/train/seconds.h"
#include "trireme/trainer/train/world.h"

namespace trireme::trainer {
namespace {

constexpr std::chrono::seconds kTimeout{300};
constexpr int kRounds = 5;  // of which the median counts

// Owns the buffers of one size.
class Case {
 public:
  Case(const World& world, const std::string& collective, int64_t bytes, const BenchOptions& options)
      : group_(*world.group()), collective_(collective) {
    const at::ScalarType type = options.dtype == "bfloat16" ? at::kBFloat16 : at::kFloat;
    // As many elements on every rank as alltoall and reduce_scatter can share out.
    const int64_t ranks = world.size();
    const int64_t count = std::max(ranks, bytes / static_cast<int64_t>(c10::elementSize(type)) / ranks * ranks);
    const auto make = [&](int64_t elements) {
      const at::TensorOptions of(type);
      return (options.shared_buffers ? group_.allocateTensor(elements, of) : at::empty({elements}, of)).fill_(1);
    };
    mine_ = make(count);
    if (collective == "allgather") other_ = make(count * ranks);
    if (collective == "alltoall") other_ = make(count);
    if (collective == "reduce_scatter") other_ = make(count / ranks);
  }

  int64_t bytes() const { return static_cast<int64_t>(mine_.nbytes()); }

  void run() {
    std::vector<at::Tensor> tensors{mine_};
    std::vector<int64_t> even;
    c10::intrusive_ptr<c10d::Work> work;
    if (collective_ == "allreduce") work = group_.allreduce(tensors, {c10d::ReduceOp::MAX});
    if (collective_ == "reduce") work = group_.reduce(tensors, {c10d::ReduceOp::MAX});
    if (collective_ == "broadcast") work = group_.broadcast(tensors, {});
    if (collective_ == "allgather") work = group_._allgather_base(other_, mine_, {});
    if (collective_ == "alltoall") work = group_.alltoall_base(other_, mine_, even, even, {});
    if (collective_ == "reduce_scatter") work = group_._reduce_scatter_base(other_, mine_, {c10d::ReduceOp::MAX});
    if (collective_ == "barrier") work = group_.barrier({});
    work->wait(kNoTimeout);
  }

 private:
  torch_ext::ProcessGroupCCL& group_;
  std::string collective_;
  at::Tensor mine_, other_;
};

// Seconds of one call: the median over rounds of the mean of a round. Every rank makes the same number of calls.
double seconds_of(Case& each, const World& world, double seconds) {
  const double start = now();
  for (int i = 0; i < 3; ++i) each.run();
  const at::Tensor calls =
      at::tensor({std::max<int64_t>(1, static_cast<int64_t>(seconds / kRounds / ((now() - start) / 3)))}, at::kLong);
  world.broadcast(calls);
  const int64_t count = calls.item<int64_t>();
  std::vector<double> rounds;
  for (int round = 0; round < kRounds; ++round) {
    world.barrier();
    const double begin = now();
    for (int64_t i = 0; i < count; ++i) each.run();
    rounds.push_back((now() - begin) / static_cast<double>(count));
  }
  std::nth_element(rounds.begin(), rounds.begin() + kRounds / 2, rounds.end());
  return rounds[kRounds / 2];
}

}  // namespace

int run_bench(const std::vector<std::string>& arguments) {
  const BenchCommand command = parse_bench(arguments);
  const BenchOptions& options = command.options;
  if (command.given.help) {
    std::cout << bench_help();
    return 0;
  }
  const World world = World::join(kTimeout);
  if (world.size() == 1) throw InvalidArgument("there is one process, and nobody to talk to: mpirun -n 2 trireme bench");
  const bool shows = world.is_first();
  if (shows && !options.json)
    std::cout << world.describe() << "\n"
              << std::left << std::setw(16) << "collective" << std::right << std::setw(12) << "bytes" << std::setw(14)
              << "microseconds" << std::setw(10) << "GB/s"
              << "\n";
  Json results = Json::array();
  for (const std::string& collective : options.collectives) {
    for (int64_t bytes = options.min_bytes; bytes <= options.max_bytes; bytes *= 4) {
      Case each(world, collective, bytes, options);
      const double seconds = seconds_of(each, world, options.seconds);
      if (shows && !options.json)
        std::cout << std::left << std::setw(16) << collective << std::right << std::setw(12) << each.bytes() << std::fixed
                  << std::setprecision(1) << std::setw(14) << seconds * 1e6 << std::setprecision(2) << std::setw(10)
                  << static_cast<double>(each.bytes()) / seconds / 1e9 << std::endl;
      results.push_back({{"collective", collective}, {"bytes", each.bytes()}, {"seconds", seconds}});
      if (collective == "barrier") break;  // it has no size
    }
  }
  if (shows && options.json) std::cout << results.dump(2) << "\n";
  return 0;
}

}  // namespace trireme::trainer
