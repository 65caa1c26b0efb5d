#include "trireme/torch_ext/process_group/threads.h"

#include <ATen/Parallel.h>
#include <unistd.h>

#include <array>
#include <atomic>

#include "trireme/ccl/comm/exchange_cards.h"
#include "trireme/cpu/pinning.h"

namespace trireme::torch_ext {
namespace {

// What a rank tells the others.
struct Card {
  int64_t pid = 0;
  std::array<uint64_t, 64> cpus{};  // a bit each
};

Card my_card() {
  Card card;
  card.pid = ::getpid();
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
    same_process += cards[rank].pid == cards[me].pid;
    masks.push_back(mask_of(cards[rank]));
  }
  if (same_process > 1 || settled.exchange(true)) return;
  cpu::PlanInput input = cpu::observe(local_rank, static_cast<int>(masks.size()), communicator.size());
  input.masks = std::move(masks);
  const cpu::Plan plan = cpu::make_plan(input);
  cpu::apply(plan, local_rank);
  if (plan.compute_threads > 0) at::set_num_threads(plan.compute_threads);
}

}  // namespace trireme::torch_ext
