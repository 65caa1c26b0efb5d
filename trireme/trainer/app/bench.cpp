// `trireme bench`: how fast the collectives are between the processes of this job, through the backend that training uses.
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
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

at::ScalarType type_of(const BenchOptions& options) { return options.dtype == "bfloat16" ? at::kBFloat16 : at::kFloat; }

// Of every rank: what alltoall and reduce_scatter can share out.
int64_t elements_of(int64_t bytes, const World& world, const BenchOptions& options) {
  const int64_t ranks = world.size(), element = static_cast<int64_t>(c10::elementSize(type_of(options)));
  return std::max(ranks, bytes / element / ranks * ranks);
}

// In elements: each once, though small ones come to the same where they are rounded. A barrier has none.
std::vector<int64_t> sizes_of(const std::string& collective, const World& world, const BenchOptions& options) {
  if (collective == "barrier") return {0};
  std::vector<int64_t> sizes;
  for (int64_t bytes = options.min_bytes; bytes <= options.max_bytes; bytes *= 4)
    if (const int64_t count = elements_of(bytes, world, options); sizes.empty() || sizes.back() != count)
      sizes.push_back(count);
  return sizes;
}

// Owns the buffers of one size. Rank r has r + 1 in all of its elements.
class Case {
 public:
  Case(const World& world, const std::string& collective, int64_t count, const BenchOptions& options)
      : group_(*world.group()), rank_(world.rank()), ranks_(world.size()), collective_(collective) {
    const at::ScalarType type = type_of(options);
    const auto make = [&](int64_t elements) {
      const at::TensorOptions of(type);
      return (options.shared_buffers ? group_.allocateTensor(elements, of) : at::empty({elements}, of)).fill_(rank_ + 1);
    };
    if (count == 0) return;
    mine_ = make(count);
    if (collective == "allgather") other_ = make(count * ranks_);
    if (collective == "alltoall") other_ = make(count);
    if (collective == "reduce_scatter") other_ = make(count / ranks_);
  }

  int64_t bytes() const { return mine_.defined() ? static_cast<int64_t>(mine_.nbytes()) : 0; }

  // The answer is looked at before anything is timed. Later calls find in their buffers what this one left.
  void run_and_check() {
    run();
    if (collective_ == "barrier" || (collective_ == "reduce" && rank_ != 0)) return;
    const bool in_place = collective_ == "allreduce" || collective_ == "reduce" || collective_ == "broadcast";
    const at::Tensor& result = in_place ? mine_ : other_;
    if (!result.equal(expected(result)))
      throw Error(str("rank ", rank_, ": ", collective_, " of ", bytes(), " bytes is wrong"));
  }

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
  // By parts, as many as there are ranks: from each its own, or the same for all.
  at::Tensor expected(const at::Tensor& result) const {
    at::Tensor values = at::empty_like(result);
    const bool of_each = collective_ == "allgather" || collective_ == "alltoall";
    const int64_t all = collective_ == "broadcast" ? 1 : ranks_;  // else the largest
    if (!of_each) return values.fill_(all);
    for (int64_t rank = 0; rank < ranks_; ++rank) values.view({ranks_, -1})[rank].fill_(rank + 1);
    return values;
  }

  torch_ext::ProcessGroupCCL& group_;
  const int64_t rank_, ranks_;
  std::string collective_;
  at::Tensor mine_, other_;
};

// Seconds of one call: the median over rounds of the mean of a round. Every rank makes the same number of calls.
double seconds_of(Case& each, const World& world, double seconds) {
  each.run_and_check();
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

void print(const std::string& collective, int64_t bytes, double seconds) {
  const bool has_size = bytes > 0;
  std::cout << std::left << std::setw(16) << collective << std::right << std::setw(12) << (has_size ? str(bytes) : "")
            << std::fixed << std::setprecision(1) << std::setw(14) << seconds * 1e6;
  if (has_size) std::cout << std::setprecision(2) << std::setw(10) << static_cast<double>(bytes) / seconds / 1e9;
  std::cout << std::endl;
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
    for (const int64_t count : sizes_of(collective, world, options)) {
      Case each(world, collective, count, options);
      const double seconds = seconds_of(each, world, options.seconds);
      if (shows && !options.json) print(collective, each.bytes(), seconds);
      Json& result = results.emplace_back(Json{{"collective", collective}, {"seconds", seconds}});
      if (count > 0) result["bytes"] = each.bytes();
    }
  }
  if (shows && options.json) std::cout << results.dump(2) << "\n";
  return 0;
}

}  // namespace trireme::trainer
