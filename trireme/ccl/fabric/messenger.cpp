#include "trireme/ccl/fabric/messenger.h"

#include <algorithm>
#include <cstring>

#include "trireme/base/error.h"
#include "trireme/base/log.h"

namespace trireme::ccl {
namespace {

// Small messages of collectives that this rank has not come to are kept up to this; then their links stop reading. Ranks that run far ahead
// wait so; what the present collective needs has come before.
constexpr size_t kMaxKeptBytes = 64 << 20;

}  // namespace

Messenger::Messenger(Engine& engine, int rank, int size) : engine_(engine), rank_(rank), links_(static_cast<size_t>(size)), heard_(static_cast<size_t>(size)) {
  engine_.add_source(this);
}

void Messenger::add_link(int peer, std::vector<std::unique_ptr<Stream>> streams, size_t eager_bytes, DirectReader* reader,
                         BulkLane* bulk) {
  LinkEvents& events = *this;
  links_[peer] = std::make_unique<Link>(peer, std::move(streams), eager_bytes, events);
  links_[peer]->set_direct_reader(reader);
  links_[peer]->set_bulk_lane(bulk);
  if (bulk && std::find(bulk_lanes_.begin(), bulk_lanes_.end(), bulk) == bulk_lanes_.end()) bulk_lanes_.push_back(bulk);
}

void Messenger::set_current(uint64_t number, const Signature& signature) {
  signatures_[number % kRemembered] = signature;
  if (number == current_number_) return;
  current_number_ = number;
  called_.clear();
  calling_out_ = false;
  recheck_ = !arrivals_.empty() || !early_calls_.empty();
}

// ---- posting

void Messenger::check_left(const Transfer& transfer) const {
  if (transfer.peer >= 0 && links_[transfer.peer] && links_[transfer.peer]->has_left()) throw_left(transfer.peer);
}

void Messenger::throw_left(int peer) const {
  throw PeerLost(peer, str("rank ", rank_, ": rank ", peer, " has left the communicator and takes part in nothing more"));
}

void Messenger::send(Transfer& transfer) {
  transfer.done = false;
  if (transfer.peer != rank_) {
    check_left(transfer);
    links_[transfer.peer]->send(transfer);
    return;
  }
  LinkFrame frame;
  frame.tag = transfer.tag;
  frame.bytes = transfer.bytes;
  frame.signature = transfer.signature;
  Arrival arrival{rank_, frame, {}, true, nullptr, &transfer};
  if (Transfer* receive = match(rank_, frame)) take(arrival, *receive);
  else arrivals_.push_back(std::move(arrival));
}

void Messenger::receive(Transfer& transfer) {
  transfer.done = false;
  for (auto arrival = arrivals_.begin(); arrival != arrivals_.end(); ++arrival) {
    if (arrival->taker || !fits(transfer, arrival->peer, arrival->frame.tag)) continue;
    check(arrival->peer, arrival->frame, transfer);
    if (!arrival->complete) {
      arrival->taker = &transfer;
      return;
    }
    Arrival taken = std::move(*arrival);
    arrivals_.erase(arrival);
    take(taken, transfer);
    return;
  }
  check_left(transfer);
  receives_.push_back(&transfer);
}

void Messenger::forget_all() {
  ended_ = true;
  for (BulkLane* bulk : bulk_lanes_) bulk->stop();
  receives_.clear();
  arrivals_.clear();
  early_calls_.clear();
  kept_bytes_ = 0;
}

// ---- matching

bool Messenger::fits(const Transfer& receive, int peer, uint64_t tag) {
  if (receive.peer != kAnySource && receive.peer != peer) return false;
  if (receive.any_tag) return !is_collective(tag);
  return receive.tag == tag;
}

void Messenger::check(int peer, const LinkFrame& frame, Transfer& receive) const {
  bool collective = is_collective(frame.tag);
  if (collective && frame.signature != receive.signature) {
    throw_mismatch(receive.number, rank_, receive.signature, peer, frame.signature);
  }
  bool fits = receive.exact ? frame.bytes == receive.bytes : frame.bytes <= receive.bytes;
  if (fits) return;
  throw Mismatch(str("rank ", rank_, ": ", collective ? str("operation #", receive.number) : str("recv (tag ", receive.tag, ")"), ": rank ", peer,
                     " sends ", frame.bytes, " bytes where this rank expects ", receive.exact ? "" : "at most ", receive.bytes,
                     ". The counts that the two ranks passed do not agree."));
}

Transfer* Messenger::match(int peer, const LinkFrame& frame) {
  hear(peer, frame);
  for (auto receive = receives_.begin(); receive != receives_.end(); ++receive) {
    if (!fits(**receive, peer, frame.tag)) continue;
    Transfer* transfer = *receive;
    check(peer, frame, *transfer);
    receives_.erase(receive);
    transfer->peer = peer;
    transfer->tag = frame.tag;
    return transfer;
  }
  if (is_collective(frame.tag)) compare(peer, frame);
  return nullptr;
}

// ---- agreement

// Throws Mismatch where this rank called something else under the number of the frame, a collective's. Nothing is known of what it has not
// come to, and of what is long over.
void Messenger::compare(int peer, const LinkFrame& frame) const {
  uint64_t number = operation_of_tag(frame.tag);
  if (number == 0 || number > current_number_ || number + kRemembered <= current_number_) return;
  const Signature& mine = signatures_[number % kRemembered];
  if (mine != frame.signature) throw_mismatch(number, rank_, mine, peer, frame.signature);
}

void Messenger::compare_call(int peer, const LinkFrame& call) {
  hear(peer, call);
  if (operation_of_tag(call.tag) <= current_number_) return compare(peer, call);
  std::erase_if(early_calls_, [&](const auto& earlier) { return earlier.first == peer; });
  early_calls_.emplace_back(peer, call);
}

void Messenger::hear(int peer, const LinkFrame& frame) {
  if (is_collective(frame.tag)) heard_[peer] = std::max(heard_[peer], operation_of_tag(frame.tag));
}

std::vector<Messenger::Awaited> Messenger::awaited() const {
  std::vector<Awaited> list;
  for (int peer = 0; peer < static_cast<int>(links_.size()); ++peer) {
    auto from_it = [&](const Transfer* receive) { return receive->peer == peer && !receive->any_tag && is_collective(receive->tag); };
    if (std::any_of(receives_.begin(), receives_.end(), from_it)) list.push_back({peer, heard_[peer] >= current_number_});
  }
  return list;
}

void Messenger::check_kept() {
  recheck_ = false;
  for (const Arrival& arrival : arrivals_) {
    if (is_collective(arrival.frame.tag) && arrival.peer != rank_) compare(arrival.peer, arrival.frame);
  }
  for (const auto& [peer, call] : early_calls_) compare(peer, call);
  std::erase_if(early_calls_, [&](const auto& call) { return operation_of_tag(call.second.tag) <= current_number_; });
}

void Messenger::call_awaited() {
  calling_out_ = false;
  for (const Transfer* receive : receives_) {
    int peer = receive->peer;
    bool awaited = is_collective(receive->tag) && !receive->any_tag && peer >= 0 && links_[peer] && !links_[peer]->has_left();
    if (!awaited || std::find(called_.begin(), called_.end(), peer) != called_.end()) continue;
    called_.push_back(peer);
    links_[peer]->send_call(receive->tag, receive->signature);
  }
}

Arrival& Messenger::keep(int peer, const LinkFrame& frame) {
  if (frame.kind == LinkFrame::eager && is_collective(frame.tag)) kept_bytes_ += frame.bytes;
  return arrivals_.emplace_back(Arrival{peer, frame, {}, false, nullptr, nullptr});
}

void Messenger::arrival_complete(Arrival& arrival) {
  arrival.complete = true;
  if (!arrival.taker) return;
  auto self = std::find_if(arrivals_.begin(), arrivals_.end(), [&](const Arrival& a) { return &a == &arrival; });
  Arrival taken = std::move(*self);
  arrivals_.erase(self);
  take(taken, *taken.taker);
}

void Messenger::take(Arrival& arrival, Transfer& receive) {
  receive.peer = arrival.peer;
  receive.tag = arrival.frame.tag;
  if (arrival.frame.kind == LinkFrame::offer) {
    check_left(receive);  // it took its offer along
    links_[arrival.peer]->accept(receive, arrival.frame);
    return;
  }
  const std::byte* from = arrival.own ? arrival.own->data : arrival.payload.data();
  if (arrival.frame.bytes != 0) std::memcpy(receive.data, from, arrival.frame.bytes);
  receive.bytes = arrival.frame.bytes;
  receive.done = true;
  if (arrival.own) {
    arrival.own->done = true;
    return;
  }
  if (is_collective(arrival.frame.tag)) kept_bytes_ -= arrival.frame.bytes;
  links_[arrival.peer]->taken(arrival.frame);
}

bool Messenger::may_keep(size_t bytes) const { return kept_bytes_ + bytes <= kMaxKeptBytes; }

// ---- the ends

void Messenger::send_leave() {
  for (auto& link : links_) {
    if (link && !link->has_left()) link->send_leave();
  }
}

// ---- progress

bool Messenger::progress() {
  if (ended_) return false;
  if (recheck_) check_kept();
  if (calling_out_) call_awaited();
  bool moved = progress_bulk();
  for (auto& link : links_) {
    if (!link) continue;
    try {
      link->confirm_bulk_sends();
      moved |= link->progress();
    } catch (const IoError& error) {
      if (!link->has_left()) throw PeerLost(link->peer(), str("rank ", rank_, ": lost rank ", link->peer(), ": ", error.what()));
    }
    // A peer that left in good order is an error only for those who still expect something of it.
    if (link->has_left()) {
      if (link->needs_peer()) throw_left(link->peer());
      for (const Transfer* receive : receives_) check_left(*receive);
    }
  }
  return moved;
}

bool Messenger::progress_bulk() {
  bool moved = false;
  for (BulkLane* bulk : bulk_lanes_) moved |= bulk->progress();
  return moved;
}

bool Messenger::active() const {
  if (ended_) return false;
  if (!receives_.empty()) return true;
  for (const auto& link : links_) {
    if (link && link->active()) return true;
  }
  return std::any_of(bulk_lanes_.begin(), bulk_lanes_.end(), [](const BulkLane* bulk) { return bulk->active(); });
}

bool Messenger::may_sleep() {
  return std::all_of(bulk_lanes_.begin(), bulk_lanes_.end(), [](BulkLane* bulk) { return bulk->may_sleep(); });
}

void Messenger::add_poll_fds(std::vector<pollfd>& fds) const {
  for (const BulkLane* bulk : bulk_lanes_) bulk->add_poll_fds(fds);
  for (const auto& link : links_) {
    if (link) link->add_poll_fds(fds);
  }
}

bool Messenger::unsent() const {
  return std::any_of(links_.begin(), links_.end(), [](const auto& link) { return link && link->has_unsent(); });
}

bool Messenger::flush() {
  bool clean = true;
  progress_bulk();
  for (auto& link : links_) {
    if (!link) continue;
    try {
      link->confirm_bulk_sends();
      clean = link->flush_out() && clean;
    } catch (const IoError& error) {
      log(LogLevel::debug, str("rank ", rank_, ": while leaving: ", error.what()));  // nobody is there to take it
    }
  }
  return clean;
}

Messenger::Done Messenger::done(Transfer& transfer) { return Done(*this, transfer); }

std::string Messenger::Done::describe() const {
  return transfer_.peer == kAnySource ? "a message of any rank" : str("a message to or from rank ", transfer_.peer);
}

}  // namespace trireme::ccl
