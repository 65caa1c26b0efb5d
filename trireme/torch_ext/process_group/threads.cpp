#include "trireme/torch_ext/process_group/threads.h"

#include <ATen/Parallel.h>

#include <array>
#include <atomic>
#include <random>

#include "trireme/ccl/bootstrap/per_process.h"
#include "trireme/ccl/bootstrap/pmi.h"
#include "trireme/ccl/comm/exchange_cards.h"
#include "trireme/cpu/pinning.h"

namespace trireme::torch_ext {
namespace {

// What tells this process from the others of the host, also where a container numbers its processes anew.
struct Nonce {
  uint64_t value = uint64_t{std::random_device()()} << 32 | std::random_device()();
  void stop() {}
};

// What a rank tells the others.
struct Card {
  uint64_t process = 0;
  std::array<uint64_t, 64> cpus{};  // a bit each
};

Card my_card() {
  static ccl::PerProcess<Nonce> nonce;
  Card card;
  card.process = nonce.get().value;
  for (int cpu : cpu::cpus_before_pinning()) {
    if (static_cast<size_t>(cpu) < card.cpus.size() * 64) card.cpus[static_cast<size_t>(cpu) / 64] |= uint64_t{1} << (cpu % 64);
  }
  return card;
}

std::vector<int> mask_of(const Card& card) {
  std::vector<int> cpus;
  for (size_t cpu = 0; cpu < card.cpus.size() * 64; ++cpu) {
    if (card.cpus[cpu / 64] >> (cpu % 64) & 1) cpus.push_back(static_cast<int>(cpu));
  }
  return cpus;
}

}  // namespace

void settle_threads(ccl::Communicator& communicator) {
  static std::atomic<bool> settled{false};
  const std::vector<Card> cards = ccl::exchange_cards(communicator, my_card());
  const std::vector<int>& hosts = communicator.hosts();
  const size_t me = static_cast<size_t>(communicator.rank());
  int local_rank = 0, same_process = 0;
  std::vector<std::vector<int>> masks;
  for (size_t rank = 0; rank < cards.size(); ++rank) {
    if (hosts[rank] != hosts[me]) continue;
    local_rank += rank < me;
    same_process += cards[rank].process == cards[me].process;
    masks.push_back(mask_of(cards[rank]));
  }
  if (same_process > 1 || settled.exchange(true)) return;
  int local_size = static_cast<int>(masks.size()), world_size = communicator.size();
  // A group of some ranks does not know the others of the host, who get cores too.
  const auto launched = ccl::launcher_rank();
  if (launched && launched->size > world_size && launched->local_size > local_size) {
    local_rank = launched->local_rank, local_size = launched->local_size, world_size = launched->size;
    masks.clear();
  }
  cpu::PlanInput input = cpu::observe(local_rank, local_size, world_size);
  input.masks = std::move(masks);
  const cpu::Plan plan = cpu::make_plan(input);
  cpu::apply(plan, local_rank);
  if (plan.compute_threads > 0) at::set_num_threads(plan.compute_threads);
}

}  // namespace trireme::torch_ext
