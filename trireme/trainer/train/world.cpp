#include "trireme/trainer/train/world.h"

#include <ATen/Parallel.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cstdlib>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "trireme/base/env.h"
#include "trireme/base/error.h"
#include "trireme/ccl/bootstrap/control.h"
#include "trireme/ccl/bootstrap/pmi.h"
#include "trireme/cpu/pinning.h"

namespace trireme::trainer {
namespace {

using torch_ext::ProcessGroupCCL;

constexpr uint16_t kDefaultPort = 29500;  // torch's own

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

uint16_t master_port() {
  const std::string text = variable("MASTER_PORT");
  if (text.empty()) return kDefaultPort;
  char* end = nullptr;
  const long port = std::strtol(text.c_str(), &end, 10);
  if (*end != '\0' || port < 1 || port > 65535)
    throw InvalidArgument(str("MASTER_PORT is '", text, "'; it must be a port, 1 to 65535"));
  return static_cast<uint16_t>(port);
}

// torchrun's agents hold the store themselves, unless TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1; elsewhere rank 0 does.
c10::intrusive_ptr<c10d::Store> tcp_store(const std::string& address, const ccl::LauncherRank& place,
                                          std::chrono::milliseconds timeout) {
  c10d::TCPStoreOptions options;
  options.port = master_port();
  const bool agents_hold_it = variable("TORCHELASTIC_USE_AGENT_STORE") == "True";
  options.isServer = place.rank == 0 && !agents_hold_it;
  options.waitWorkers = false;
  options.timeout = timeout;
  try {
    return c10::make_intrusive<c10d::TCPStore>(address, options);
  } catch (const c10::DistError& error) {
    const char* remedy = agents_hold_it ? " Agents of torchrun may keep the address of a rank 0 that is gone: "
                                          "TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 gives every start a store of its own."
                                        : " Is rank 0 running, and does MASTER_ADDR lead to its host?";
    throw IoError(str("the store at ", address, " port ", options.port, ": ", error.what_without_backtrace(), ".", remedy));
  }
}

// cn07 of "cn[07-09,12],login1", which the tasks of a step have in SLURM_STEP_NODELIST: the host of the first.
std::string first_slurm_host(const std::string& nodes) {
  const size_t end = nodes.find_first_of(",[");
  std::string name = nodes.substr(0, end);
  if (end != std::string::npos && nodes[end] == '[') name += nodes.substr(end + 1, nodes.find_first_of("-,]", end) - end - 1);
  return name;
}

std::string master_address(const ccl::LauncherRank& place) {
  const std::string address = variable("MASTER_ADDR"), nodes = variable("SLURM_STEP_NODELIST");
  if (!address.empty()) return address;
  if (place.local_size == place.size) return "127.0.0.1";
  if (std::string_view(place.launcher) == "Slurm" && !nodes.empty()) return first_slurm_host(nodes);
  throw InvalidArgument(
      str("rank ", place.rank, ": this job of ", place.launcher, " has ", place.size, " processes, ", place.local_size,
          " of them on this host; set MASTER_ADDR to the address of the host of rank 0, so that the others find it"));
}

// mpirun -pmi-port tells its processes where to ask for rank and size.
bool is_to_be_asked_for() {
  return !variable("PMI_PORT").empty() && !variable("PMI_ID").empty() && variable("CCL_PROCESS_LAUNCHER") != "none";
}

ccl::LauncherRank asked_for(const std::optional<ccl::Pmi>& pmi) {
  if (!pmi) throw InvalidArgument("mpirun set PMI_PORT and PMI_ID, and PMI is not to be had there: how many processes there are is not known");
  const int local_rank = std::atoi(variable("MPI_LOCALRANKID").c_str());
  return {pmi->rank, pmi->size, local_rank, std::max(std::atoi(variable("MPI_LOCALNRANKS").c_str()), local_rank + 1), "hydra"};
}

}  // namespace

void settle_threads() {
  const cpu::Plan plan = cpu::make_plan(cpu::observe(0, 1, 1));
  cpu::apply(plan, 0);
  if (plan.compute_threads > 0) at::set_num_threads(plan.compute_threads);
}

World::World(c10::intrusive_ptr<ProcessGroupCCL> group)
    : rank_(group->getRank()), size_(group->getSize()), group_(std::move(group)) {}

World World::join(std::chrono::seconds timeout) {
  // Not half an hour: where a host was lost while its ranks started, nobody else would ever notice.
  const auto connect_timeout = std::min<std::chrono::milliseconds>(timeout, env::duration("CCL_KVS_CONNECTION_TIMEOUT"));
  const auto options = c10::make_intrusive<ProcessGroupCCL::Options>(connect_timeout);
  std::optional<ccl::LauncherRank> place = ccl::launcher_rank();
  std::optional<ccl::Pmi> pmi;
  if (!place && is_to_be_asked_for()) place = asked_for(pmi = ccl::connect_pmi());
  if (!place || place->size == 1) {
    settle_threads();
    return World();
  }
  static_cast<void>(ccl::local_addresses());  // a wrong TRIREME_IFACE is an error now, not a wait for one who has seen it
  // PMI needs no address and no port, and works across hosts.
  if (!pmi && std::string_view(place->launcher) == "hydra") pmi = ccl::connect_pmi();
  World world(pmi ? c10::make_intrusive<ProcessGroupCCL>(pmi->store, place->rank, place->size, options)
                  : c10::make_intrusive<ProcessGroupCCL>(tcp_store(master_address(*place), *place, connect_timeout),
                                                         place->rank, place->size, options));
  world.local_rank_ = place->local_rank;
  world.launcher_ = place->launcher;
  world.group_->setTimeout(timeout);  // from now on
  return world;
}

std::string World::describe() const {
  if (!group_) return "1 process";
  return str(size_, " processes by ", launcher_, ": ", group_->describe());
}

void World::sum(const at::Tensor& values) const {
  if (!group_) return;
  std::vector<at::Tensor> tensors{values};
  group_->allreduce(tensors, {})->wait(kNoTimeout);
}

void World::broadcast(const at::Tensor& values) const {
  if (!group_) return;
  std::vector<at::Tensor> tensors{values};
  group_->broadcast(tensors, {})->wait(kNoTimeout);
}

void World::barrier() const {
  if (group_) group_->barrier({})->wait(kNoTimeout);
}

void World::check() const {
  if (group_ && group_->getError() != c10d::ErrorType::SUCCESS) barrier();  // which fails with the first cause
}

at::Tensor World::gather(const at::Tensor& values) const {
  if (!group_) return values.unsqueeze(0);
  std::vector<int64_t> shape{size_};
  shape.insert(shape.end(), values.sizes().begin(), values.sizes().end());
  at::Tensor all = at::zeros(shape, values.options());
  at::Tensor mine = values.contiguous();
  group_->_allgather_base(all, mine, {})->wait(kNoTimeout);
  return all;
}

}  // namespace trireme::trainer
