#include "trireme/ccl/comm/communicator.h"

#include <algorithm>
#include <cstring>

#include "trireme/base/env.h"
#include "trireme/base/error.h"
#include "trireme/base/log.h"
#include "trireme/ccl/algorithms/choice.h"
#include "trireme/ccl/comm/creation.h"
#include "trireme/ccl/comm/exchange_cards.h"
#include "trireme/ccl/comm/workers.h"
#include "trireme/ccl/node/shared_heap.h"
#include "trireme/cpu/isa.h"

namespace trireme::ccl {

// ---- requests

bool Request::finished() const { return !state_ || state_->finished.load(std::memory_order_acquire); }

void Request::hand_over() {
  if (!finished()) state_->comm->hand_over();
}

bool Request::test() {
  if (!finished()) state_->comm->nudge();
  if (!finished()) return false;
  if (state_ && state_->error) std::rethrow_exception(state_->error);
  return true;
}

void Request::wait() { wait_until(Deadline::never()); }

bool Request::wait_until(Deadline deadline) {
  if (state_ && !state_->comm->wait(*state_, deadline)) return false;
  if (state_ && state_->error) std::rethrow_exception(state_->error);
  return true;
}

int Request::source() const { return state_ ? state_->transfer.peer : -1; }
int Request::source_tag() const { return state_ ? static_cast<int>(state_->transfer.tag) : -1; }
size_t Request::received_bytes() const { return state_ ? state_->transfer.bytes : 0; }

// ---- communicators

Communicator::Communicator(std::shared_ptr<CommunicatorState> state) : state_(std::move(state)) {}

Communicator::~Communicator() {
  if (state_->in_forked_child()) {
    // Never destroyed: a thread that the child does not have may have been in the middle of a change.
    new std::shared_ptr<CommunicatorState>(std::move(state_));
    return;
  }
  if (state_->reports()) log(LogLevel::error, state_->report());
  state_->close();
}

namespace {

// Throws InvalidArgument for what is wrong in variables that are needed later, where it would end the communicator.
void check_environment() {
  Workers::check_settings();
  env::flag("TRIREME_REPORT");
  cpu::isa();
  AlgorithmChoices{};
}

}  // namespace

std::shared_ptr<Communicator> Communicator::create(int size, int rank, std::shared_ptr<Store> store, const CommunicatorOptions& options) {
  if (size < 1) throw InvalidArgument(str("size = ", size, ": a communicator has at least one rank"));
  if (rank < 0 || rank >= size) throw InvalidArgument(str("rank = ", rank, ": the ranks of ", size, " go from 0 to ", size - 1));
  if (!store && size > 1) throw InvalidArgument("store is null: the ranks have no way to find each other");
  env::warn_about_unknown();
  env::text("CCL_UNORDERED_COLL");  // refuses what would give wrong results
  for (const char* checked : {"CCL_ATL_TRANSPORT", "CCL_PROCESS_LAUNCHER"}) env::text(checked);
  check_environment();
  Deadline deadline = connect_deadline(options);
  auto alone = size == 1 && !store ? make_memory_store() : nullptr;
  auto control = Control::meet(size, rank, store ? *store : *alone, "trireme/" + options.name, deadline);
  return std::shared_ptr<Communicator>(new Communicator(build_communicator(std::move(control), options, deadline)));
}

std::vector<std::shared_ptr<Communicator>> Communicator::create_threads(int size, const CommunicatorOptions& options) {
  check_environment();
  std::vector<std::shared_ptr<Communicator>> communicators;
  for (auto& state : build_thread_communicators(size, options)) communicators.emplace_back(new Communicator(std::move(state)));
  return communicators;
}

void Communicator::finalize() {
  state_->wait_for_all();
  state_->close();
}

int Communicator::rank() const { return state_->topology().rank; }
int Communicator::size() const { return state_->topology().size(); }
const std::vector<int>& Communicator::hosts() const { return state_->topology().hosts; }
std::string Communicator::describe() const { return state_->describe(); }
Request Communicator::submit(Operation&& op) { return Request(state_->submit(std::move(op))); }
void Communicator::abort(const std::string& reason) { state_->abort(reason); }
std::exception_ptr Communicator::error() const { return state_->error(); }
std::string Communicator::report() const { return state_->report(); }

void* Communicator::allocate_shared(size_t bytes) { return SharedHeap::instance().allocate(bytes); }
void Communicator::release_shared(void* data) { SharedHeap::instance().release(data); }
bool Communicator::is_shared(const void* data) { return SharedHeap::instance().find(data, 1) != nullptr; }

// ---- split

namespace {

// What each rank says in a split; the first of a group also invites the others, or says why it cannot.
struct SplitCard {
  int32_t color = 0;
  int32_t key = 0;
  uint32_t failed = 0;
  uint32_t text_bytes = 0;
  char text[512] = {};

  void write(const std::string& what) {
    text_bytes = static_cast<uint32_t>(std::min(what.size(), sizeof text));
    std::memcpy(text, what.data(), text_bytes);
  }
  std::string read() const { return {text, std::min<size_t>(text_bytes, sizeof text)}; }
};

// The parent's ranks with my color, ordered by key, then rank.
std::vector<int> group_of(const std::vector<SplitCard>& cards, int color) {
  std::vector<int> group;
  for (int rank = 0; rank < static_cast<int>(cards.size()); ++rank) {
    if (cards[rank].color == color) group.push_back(rank);
  }
  std::stable_sort(group.begin(), group.end(), [&](int a, int b) { return cards[a].key < cards[b].key; });
  return group;
}

}  // namespace

std::shared_ptr<Communicator> Communicator::split(int color, int key) {
  // Once to learn who belongs together, once for the invitations of the groups' first ranks.
  SplitCard card;
  card.color = color;
  card.key = key;
  std::vector<int> group = group_of(exchange_cards(*this, card), color);
  int size = static_cast<int>(group.size());
  int rank = static_cast<int>(std::find(group.begin(), group.end(), this->rank()) - group.begin());
  std::shared_ptr<Control::Invitation> invitation;
  if (color >= 0 && rank == 0) {
    // The others wait for its word, so that it fails only after the exchange, with all of them.
    try {
      invitation = Control::invite(size);
      std::string text = Control::text_of(*invitation);
      TRIREME_ENFORCE(text.size() <= sizeof card.text, "an invitation of ", text.size(), " bytes");
      card.write(text);
    } catch (const Error& error) {
      card.failed = 1;
      card.write(error.what());
    }
  }
  std::vector<SplitCard> cards = exchange_cards(*this, card);
  for (int each = 0; each < this->size(); ++each) {
    if (cards[each].failed) throw IoError(str("rank ", this->rank(), ": split: rank ", each, " cannot invite the others: ", cards[each].read()));
  }
  if (color < 0) return nullptr;

  CommunicatorOptions options = state_->options();
  Deadline deadline = connect_deadline(options);
  const SplitCard& first = cards[group[0]];
  auto control = rank == 0 ? Control::serve(invitation, deadline)
                           : Control::join(size, rank, first.read(), deadline);
  return std::shared_ptr<Communicator>(new Communicator(build_communicator(std::move(control), options, deadline)));
}

}  // namespace trireme::ccl
