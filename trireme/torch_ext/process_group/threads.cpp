#include "trireme/torch_ext/process_group/threads.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <fstream>
#include <random>
#include <string>

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
  uint64_t kernel = 0;              // the one it runs on, whatever the network and the labels of hosts say
  std::array<uint64_t, 64> cpus{};  // a bit each
};

uint64_t running_kernel() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  return std::hash<std::string>()(boot);
}

Card my_card() {
  static ccl::PerProcess<Nonce> nonce;
  Card card;
  card.process = nonce.get().value;
  card.kernel = running_kernel();
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

// This process among those that divide the cores.
struct Place {
  int local_rank = 0, local_size = 0, world_size = 0;
  std::vector<std::vector<int>> masks;  // by local rank; empty: not known
};

// Among the ranks for which `shares` holds.
template <class Shares>
Place place_among(const std::vector<Card>& cards, size_t me, Shares&& shares) {
  Place place;
  for (size_t rank = 0; rank < cards.size(); ++rank) {
    if (!shares(rank)) continue;
    place.local_rank += rank < me;
    place.masks.push_back(mask_of(cards[rank]));
  }
  place.local_size = static_cast<int>(place.masks.size());
  place.world_size = static_cast<int>(cards.size());
  return place;
}

// Ranks that share memory share the cores. Others may, too: those of which a group of some ranks does not know, and those that are kept from sharing
// memory, by a setting or because each has a network of its own. The launcher says how many there are.
Place find_place(const ccl::Communicator& communicator, const std::vector<Card>& cards) {
  const std::vector<int>& hosts = communicator.hosts();
  const auto me = static_cast<size_t>(communicator.rank());
  Place place = place_among(cards, me, [&](size_t rank) { return hosts[rank] == hosts[me]; });
  const auto launched = ccl::launcher_rank();
  if (!launched || launched->size < place.world_size || launched->local_size <= place.local_size) return place;
  Place on_kernel = place_among(cards, me, [&](size_t rank) { return cards[rank].kernel == cards[me].kernel; });
  // Fewer than it says: of hosts with different numbers of ranks, some launchers give that of one.
  if (launched->size == place.world_size && on_kernel.local_size <= launched->local_size) return on_kernel;
  return {launched->local_rank, launched->local_size, launched->size, {}};
}

}  // namespace

void settle_threads(ccl::Communicator& communicator) {
  static std::atomic<bool> settled{false};
  const std::vector<Card> cards = ccl::exchange_cards(communicator, my_card());
  const uint64_t process = cards[static_cast<size_t>(communicator.rank())].process;
  const bool is_alone = std::ranges::count(cards, process, &Card::process) == 1;
  if (!is_alone || settled.exchange(true)) return;
  Place place = find_place(communicator, cards);
  cpu::PlanInput input = cpu::observe(place.local_rank, place.local_size, place.world_size);
  input.masks = std::move(place.masks);
  const cpu::Plan plan = cpu::make_plan(input);
  cpu::apply(plan, place.local_rank);
  if (plan.compute_threads > 0) at::set_num_threads(plan.compute_threads);
}

}  // namespace trireme::torch_ext
