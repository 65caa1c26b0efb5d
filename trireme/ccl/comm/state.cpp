#include "trireme/ccl/comm/state.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "trireme/base/env.h"
#include "trireme/base/error.h"
#include "trireme/base/log.h"
#include "trireme/ccl/algorithms/inline.h"
#include "trireme/ccl/comm/workers.h"
#include "trireme/ccl/node/ring_stream.h"
#include "trireme/cpu/affinity.h"

namespace trireme::ccl {
namespace {

// Below these a message is sent at once instead of being offered first.
constexpr size_t kRingEagerBytes = 16 * 1024;
constexpr size_t kTcpEagerBytes = 64 * 1024;
// Operations up to this size are worth finishing in submit() itself, if the peers are there already.
constexpr size_t kInlineSubmitBytes = 256 * 1024;

constexpr int kRoundsWithoutPause = 64;
constexpr auto kCallerPolls = std::chrono::milliseconds(50);

// Large messages within a host are read out of the sender's memory.
class LocalReader final : public DirectReader {
 public:
  LocalReader(Node& node, const Topology& topology) : node_(node), topology_(topology) {}

  void announce(const void* data, size_t bytes, LinkFrame& offer) override {
    View view = node_.memory().view_of(data, bytes);
    offer.address = view.address;
    offer.region = view.region;
    offer.readable = node_.memory().reachable(view);
  }
  // A rank that leaves takes its memory along, and one whose communicator fails gives it back to its caller. Both show it before, so what was read until
  // then is whole.
  void read(int peer, const LinkFrame& offer, void* data) override {
    check_present(peer);
    try {
      node_.memory().read(topology_.local[peer], {offer.address, offer.bytes, offer.region, 0}, 0, data, offer.bytes);
    } catch (const IoError&) {
      check_present(peer);
      throw;
    }
    check_present(peer);
  }

 private:
  void check_present(int peer) const {
    if (node_.fails()) node_.throw_poison();
    // After the flag that read_from_peers raised: either this sees the rank leave, or who leaves sees the flag.
    if (node_.segment().progress(topology_.local[peer]).value.load(std::memory_order_seq_cst) != kLeft) return;
    throw PeerLost(peer, str("rank ", topology_.rank, ": rank ", peer, " has left the communicator before its message was taken"));
  }

  Node& node_;
  const Topology& topology_;
};

size_t bytes_of(const Operation& op) {
  size_t bytes = op.count * size_of(op.type);
  for (const Block& block : op.recv_blocks) bytes += block.bytes;
  for (size_t count : op.recv_counts) bytes += count * size_of(op.type);
  return bytes;
}

// Of an operation that there was no memory to begin.
Task failed(std::exception_ptr error) {
  std::rethrow_exception(error);
  co_return;
}

inline void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// Those of the host's ranks, as far as this process can name them; threads of this process are none.
std::vector<pid_t> other_processes(const std::vector<LocalPeer>& peers) {
  std::vector<pid_t> processes;
  for (const LocalPeer& peer : peers)
    if (peer.pid != 0 && peer.pid != getpid()) processes.push_back(peer.pid);
  return processes;
}

}  // namespace

CommunicatorState::CommunicatorState(CommunicatorParts parts)
    : options_(std::move(parts.options)),
      topology_(parts.rank, std::move(parts.hosts)),
      host_names_(std::move(parts.host_names)),
      ways_(std::move(parts.ways)),
      bulk_(std::move(parts.bulk)),
      control_(std::move(parts.control)),
      local_peers_(parts.local.members),
      access_(parts.local.access),
      departed_(static_cast<size_t>(topology_.size())),
      processes_(std::move(parts.processes)) {
  std::vector<int> global_ranks;
  for (const LocalPeer& peer : local_peers_) global_ranks.push_back(peer.global_rank);
  node_ = std::make_unique<Node>(engine_, std::move(parts.local.segment), parts.local.me, std::move(global_ranks),
                                 PeerMemory(access_, parts.local.me, local_peers_, std::move(parts.local.socket)));
  if (!topology_.one_host()) node_->set_event_fds(std::move(parts.local.event_fds));
  reader_ = std::make_unique<LocalReader>(*node_, topology_);
  messenger_ = std::make_unique<Messenger>(engine_, topology_.rank, topology_.size());
  for (int peer = 0; peer < topology_.size(); ++peer) {
    if (peer == topology_.rank) continue;
    if (topology_.hosts[peer] != topology_.my_host()) {
      messenger_->add_link(peer, std::move(parts.streams[peer]), kTcpEagerBytes, nullptr, bulk_.get());
      continue;
    }
    int local = topology_.local[peer];
    std::vector<std::unique_ptr<Stream>> streams;
    streams.push_back(std::make_unique<RingStream>(node_->segment(), node_->rank(), local, [this, local] { node_->notify(local); }));
    messenger_->add_link(peer, std::move(streams), kRingEagerBytes, reader_.get(), nullptr);
  }
  // Polling pays only while every rank of the host has a core to itself. Ranks that were bound apart have their masks together.
  long long spins = env::integer("CCL_SPIN_COUNT");
  bool crowded = node_->size() > cpu::granted_cores(other_processes(local_peers_));
  context_.emplace(CommContext{engine_, *node_, *messenger_, topology_, WayChooser(way_by_hand(), !crowded), RecurringBuffers(huge_pages_wanted()), {}, {}});
  spin_rounds_ = spins >= 0 ? static_cast<int>(spins) : crowded ? 20 : 2000;
  spin_by_time_ = spins < 0 && !crowded;
  at_once_rounds_ = std::min(spin_rounds_, 500);
  offload_ = env::flag("CCL_WORKER_OFFLOAD");
  reports_ = env::flag("TRIREME_REPORT");
}

CommunicatorState::~CommunicatorState() = default;

// ---- submitting and waiting

void CommunicatorState::refuse_forked_child() const {
  if (!in_forked_child()) return;
  throw InvalidArgument(str("this communicator belongs to the parent process, as its rank ", topology_.rank,
                            "; a forked child cannot use it. Make one in the child, or use it in the parent."));
}

RequestPtr CommunicatorState::submit(Operation&& op) {
  refuse_forked_child();
  validate(op, topology_.rank, topology_.size());
  if (op.kind == OpKind::allreduce || op.kind == OpKind::reduce || op.kind == OpKind::reduce_scatter) {
    Reducer(op.type, op.reduction, topology_.size(), op.custom);  // throws where the pair has no meaning
  }
  if (poisoned_.load(std::memory_order_acquire) || node_->poisoned()) std::rethrow_exception(error());
  bool caller_waits = op.caller_waits;
  RequestPtr request;
  if (fits_inline(*context_, op) && pending_.load(std::memory_order_acquire) == 0 && try_drive()) {
    bool done = false;
    {
      const Turn turn(*this);
      if (poisoned_.load(std::memory_order_acquire)) std::rethrow_exception(error());  // closed meanwhile
      try {
        done = run_at_once(op, request);
      } catch (...) {  // also what a custom reduction throws
        fail(std::current_exception());
        std::rethrow_exception(error());
      }
    }
    if (done) {
      if (auto tell = std::exchange(op.on_finished, nullptr)) tell(nullptr);
      return nullptr;
    }
  }
  if (!request) request = enqueue(op);
  if (!caller_waits && !request->finished.load(std::memory_order_acquire)) call_for_progress(*request);
  return request;
}

// A small operation within the host, with nothing else under way: if the others are here, it takes no more than a look at each. If
// they are not, what has been announced goes on as a coroutine. True: it is complete. The caller has the turn.
bool CommunicatorState::run_at_once(Operation& op, RequestPtr& request) {
  OpContext run(*context_, op, last_number_ + 1);
  if (pending_.load(std::memory_order_acquire) != 0 || !run.may_enter_now()) return false;
  if (auto prepare = std::exchange(op.on_start, nullptr)) prepare();
  ++last_number_;
  show_payload(run);
  // A peer that is on its way is here before a pause would be over: 140 cycles on recent processors.
  for (int round = 0; round < at_once_rounds_ && !run.all_entered_now(false); ++round) {
    if (round >= kRoundsWithoutPause) pause();
  }
  node_->wake_sleepers();
  if (!run.all_entered_now(true) || !finish_inline(run)) {
    request = make_request(op);
    request->announced_as = last_number_;
    collectives_.push_front(request);
    start_next_collective();
    return false;
  }
  return true;
}

RequestPtr CommunicatorState::make_request(Operation& op) {
  auto timeout = op.timeout.count() > 0 ? op.timeout : options_.timeout;
  pending_.fetch_add(1, std::memory_order_seq_cst);
  return std::make_shared<RequestState>(shared_from_this(), std::move(op), Deadline::after(timeout));
}

RequestPtr CommunicatorState::enqueue(Operation& op) {
  std::lock_guard lock(inbox_mutex_);
  if (ended_) std::rethrow_exception(error());
  RequestPtr request = make_request(op);
  inbox_.push_back(request);
  inbox_size_.store(inbox_.size(), std::memory_order_seq_cst);
  return request;
}

// Nobody may be driving: do a little of it here, then see that somebody does the rest.
void CommunicatorState::call_for_progress(RequestState& request) {
  bool small = bytes_of(request.op) <= kInlineSubmitBytes;
  if (small && try_drive()) {
    {
      const Turn turn(*this);
      // The peers are often here already: look for as long as calling a worker would take.
      for (int round = 0; round < std::min(spin_rounds_, 200) && !request.finished; ++round) {
        if (!poll()) pause();
      }
    }
    if (request.finished.load(std::memory_order_acquire)) return;
  }
  if (asleep_.load(std::memory_order_seq_cst)) interrupt();
  // A small operation is not worth a worker's coming, and a caller that always waits at once does the work itself: then it is enough
  // that a worker looks in now and then.
  bool can_wait = small || blocking_streak_.load(std::memory_order_relaxed) >= 4;
  if (!offload_) return;
  if (!can_wait) Workers::instance().call(shared_from_this());
  else if (!looked_after.load(std::memory_order_seq_cst)) Workers::instance().look_after(shared_from_this());
}

bool CommunicatorState::wait(RequestState& request, Deadline deadline) {
  return wait_until([&] { return request.finished.load(std::memory_order_acquire); }, deadline);
}

void CommunicatorState::wait_for_all() {
  refuse_forked_child();
  wait_until([&] { return pending_.load(std::memory_order_acquire) == 0; }, Deadline::never());
}

// False when the deadline passed before it was `over`.
template <class Over>
bool CommunicatorState::wait_until(const Over& over, Deadline deadline) {
  if (!over()) refuse_forked_child();
  bool drove_first = false;
  while (!over()) {
    if (deadline.passed()) return false;
    if (!closed() && try_drive()) {
      const Turn turn(*this);
      if (!drove_first) blocking_streak_.store(std::min(8, blocking_streak_.load(std::memory_order_relaxed) + 1), std::memory_order_relaxed);
      drove_first = true;
      auto stop = [&] { return over() || (!deadline.is_never() && deadline.passed()) || closed(); };
      drive(stop, Patience::caller, deadline);
      continue;
    }
    // Who has the turn may sleep for something else, and not have seen what is waited for. Either it is seen asleep here, or it looks into
    // the inbox once more before it sleeps.
    if (inbox_size_.load(std::memory_order_seq_cst) != 0 && asleep_.load(std::memory_order_seq_cst)) interrupt();
    std::unique_lock lock(wait_mutex_);
    blocked_.fetch_add(1, std::memory_order_seq_cst);
    wait_changed_.wait_for(lock, std::chrono::milliseconds(deadline.left_ms(50)), [&] { return over() || !driving_.load(); });
    blocked_.fetch_sub(1, std::memory_order_seq_cst);
  }
  return true;
}

void CommunicatorState::hand_over() {
  refuse_forked_child();
  Workers::instance().call(shared_from_this());  // also without offload_: there is nobody else
  if (asleep_.load(std::memory_order_seq_cst)) interrupt();
}

void CommunicatorState::nudge() {
  refuse_forked_child();
  if (!try_drive()) return;
  const Turn turn(*this);
  const bool moved = poll();
  check_deadlines();  // who polls without a pause keeps everybody else from the turn
  // Nor does it ever sleep, which is when others call out.
  if (moved || !collective_started_) nudged_.rounds = 0;
  else if (++nudged_.rounds == 1) nudged_.since = std::chrono::steady_clock::now();
  else if (nudged_.rounds % 64 == 0 && std::chrono::steady_clock::now() - nudged_.since > kCallerPolls) messenger_->call_out();
}

void CommunicatorState::drive(const std::function<bool()>& stop, Patience patience, Deadline until) {
  Idle idle{patience, until};
  while (!stop()) {
    if (poll()) idle.rounds = 0;
    else if (!stop()) this->idle(idle);
  }
}

bool CommunicatorState::drive_briefly() {
  bool moved = poll();
  for (int round = 0; round < 64 && poll(); ++round) {
  }
  check_deadlines();
  return moved;
}

void CommunicatorState::stop_driving() {
  // An answer that a peer waits for may still be queued when our own operation is complete.
  const bool unsent = !engine_.failure() && messenger_->unsent();
  if (unsent != unsent_.load(std::memory_order_relaxed)) unsent_.store(unsent, std::memory_order_seq_cst);
  driving_.store(false, std::memory_order_seq_cst);
  if (blocked_.load(std::memory_order_seq_cst) != 0) {
    std::lock_guard lock(wait_mutex_);
    wait_changed_.notify_all();
  } else if (has_work() && offload_ && !looked_after.load(std::memory_order_seq_cst)) {
    Workers::instance().look_after(shared_from_this());
  }
}

void CommunicatorState::interrupt() { node_->wake_self(); }

// ---- driving

bool CommunicatorState::poll() {
  if (!engine_.failure() && (poisoned_.load(std::memory_order_acquire) || node_->poisoned())) fail(error());
  bool moved = inbox_size_.load(std::memory_order_acquire) != 0 && take_inbox();
  try {
    moved |= node_->read_from_peers([&] { return engine_.poll(); });
  } catch (...) {
    fail(std::current_exception());
    moved = true;
  }
  if (unsent_.load(std::memory_order_relaxed)) unsent_.store(!engine_.failure() && messenger_->unsent(), std::memory_order_release);
  return reap() || moved;
}

bool CommunicatorState::take_inbox() {
  std::vector<RequestPtr> arrived;
  {
    std::lock_guard lock(inbox_mutex_);
    arrived.swap(inbox_);
    inbox_size_.store(0, std::memory_order_seq_cst);
  }
  for (RequestPtr& request : arrived) {
    if (engine_.failure()) {
      finish(request, engine_.failure());
    } else if (is_message(request->op)) {
      messages_.push_back(request);
      start(request);
    } else {
      earliest_queued_ = Deadline::earlier(earliest_queued_, request->deadline);
      collectives_.push_back(std::move(request));
    }
  }
  start_next_collective();
  return !arrived.empty();
}

bool CommunicatorState::start_next_collective() {
  if (collective_started_ || collectives_.empty()) return false;
  collective_started_ = true;
  start(collectives_.front());
  return true;
}

void CommunicatorState::start(const RequestPtr& request) {
  try {
    if (auto prepare = std::exchange(request->op.on_start, nullptr)) prepare();
    request->task = is_message(request->op) ? point_to_point(*request) : collective(*request);
    node_->read_from_peers([&] { request->task.start(); });
  } catch (...) {
    fail(std::current_exception());
    if (request->task.done()) request->task = failed(std::current_exception());
    request->task.start();  // to its first wait, which throws
  }
  // What it posted before it threw must not be touched again.
  if (request->task.done() && request->task.error()) fail(request->task.error());
}

Task CommunicatorState::collective(RequestState& request) {
  bool announced = request.announced_as != 0;
  request.number = announced ? request.announced_as : ++last_number_;
  request.run = std::make_unique<OpContext>(*context_, request.op, request.number);
  return announced ? meet_inline(*request.run, true) : run_collective(*request.run);
}

Task CommunicatorState::point_to_point(RequestState& request) {
  const Operation& op = request.op;
  Transfer& transfer = request.transfer;
  transfer.peer = op.peer;
  transfer.any_tag = op.tag == kAnyTag;
  transfer.tag = static_cast<uint64_t>(static_cast<uint32_t>(op.tag));
  transfer.bytes = op.count * size_of(op.type);
  transfer.exact = false;
  if (op.kind == OpKind::send) {
    transfer.data = static_cast<std::byte*>(const_cast<void*>(op.send_buffer));
    messenger_->send(transfer);
  } else {
    transfer.data = static_cast<std::byte*>(op.recv_buffer);
    messenger_->receive(transfer);
  }
  co_await messenger_->done(transfer);
}

// Takes out what is complete. An operation that ended in an exception ends the communicator.
bool CommunicatorState::reap() {
  bool any = false;
  for (auto message = messages_.begin(); message != messages_.end();) {
    if (!(*message)->task.done()) {
      ++message;
      continue;
    }
    RequestPtr request = *message;
    message = messages_.erase(message);
    end(request);
    any = true;
  }
  while (collective_started_ && collectives_.front()->task.done()) {
    RequestPtr request = collectives_.front();
    collectives_.pop_front();
    collective_started_ = false;
    bool failed = request->task.error() != nullptr;
    // What needed no meeting (a communicator of one rank) counts as entered all the same: the next operation waits for that.
    if (!failed && node_->progress_of(node_->rank()) < progress_value(request->number, kEntered)) node_->advance(progress_value(request->number, kEntered));
    end(request);
    any = true;
    if (!engine_.failure()) start_next_collective();
  }
  if (engine_.failure() && !collective_started_) {
    while (!collectives_.empty()) {
      finish(collectives_.front(), engine_.failure());
      collectives_.pop_front();
    }
  }
  return any;
}

// A task that ended in an exception ends the communicator; its request fails with the first cause, which may be another's.
void CommunicatorState::end(const RequestPtr& request) {
  bool failed = request->task.error() != nullptr;
  if (failed && !engine_.failure()) fail(request->task.error());
  finish(request, failed ? error() : nullptr);
}

void CommunicatorState::finish(const RequestPtr& request, std::exception_ptr error) {
  if (error) {
    PoisonNote note = PoisonNote::from(error);
    std::string prefix = str("rank ", topology_.rank, ": ", ccl::describe(request->op), request->number ? str(" #", request->number) : "", ": ");
    if (note.text.find("operation #") == std::string::npos) note.text = prefix + note.text;
    request->error = note.to_exception();
  }
  request->run.reset();
  request->task = Task();
  request->op.on_start = nullptr;
  if (auto tell = std::exchange(request->op.on_finished, nullptr)) tell(request->error);
  pending_.fetch_sub(1, std::memory_order_acq_rel);
  request->finished.store(true, std::memory_order_seq_cst);
  if (blocked_.load(std::memory_order_seq_cst) != 0) {
    std::lock_guard lock(wait_mutex_);
    wait_changed_.notify_all();
  }
}

// ---- waiting for peers

// Polls for a while, then sleeps. A caller has nothing better to do, and where every rank has a core it polls for longer than another process's
// time slice: a rank that goes to sleep whenever its peer is off its core soon finds both of them asleep in turn, which measured 30
// times slower beside busy processes. A worker's core may be wanted for computing, and so may any core where ranks outnumber them.
void CommunicatorState::idle(Idle& idle) {
  if (++idle.rounds == 1) idle.since = std::chrono::steady_clock::now();
  bool poll_on = idle.rounds < spin_rounds_;
  if (!poll_on && idle.patience == Patience::caller && spin_by_time_) poll_on = std::chrono::steady_clock::now() - idle.since < kCallerPolls;
  if (idle.rounds % 256 == 0) check_deadlines();
  if (poll_on) {
    pause();
    return;
  }
  check_deadlines();
  sleep(idle.until);
}

void CommunicatorState::sleep(Deadline until) {
  using std::chrono::microseconds;
  std::vector<pollfd> fds;
  if (!topology_.one_host()) engine_.add_poll_fds(fds);
  const ProgressWait* only = engine_.only_progress_wait();
  node_->set_waits_for(engine_.awaited_rank());
  Deadline wake = Deadline::earlier(until, Deadline::after(std::chrono::milliseconds(100)));
  if (collective_started_) wake = Deadline::earlier(wake, collectives_.front()->deadline);
  for (const RequestPtr& message : messages_) wake = Deadline::earlier(wake, message->deadline);
  int timeout_ms = wake.left_ms(100);
  remember_waits();
  if (collective_started_) messenger_->call_out();
  asleep_.store(true, std::memory_order_seq_cst);
  if (fds.empty()) {
    node_->sleep(only, [this] { return poll(); }, microseconds(1000 * timeout_ms + 50));
  } else {
    int event_fd = node_->begin_poll_sleep();
    fds.push_back({event_fd, POLLIN, 0});
    if (!poll() && engine_.may_sleep()) {
      ::poll(fds.data(), fds.size(), timeout_ms + 1);
      uint64_t drained;
      [[maybe_unused]] ssize_t got = ::read(event_fd, &drained, sizeof drained);
    }
    node_->end_sleep();
  }
  asleep_.store(false, std::memory_order_seq_cst);
}

}  // namespace trireme::ccl
