#include "trireme/ccl/fabric/link.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/ccl/bootstrap/wire.h"

namespace trireme::ccl {

Link::Link(int peer, std::vector<std::unique_ptr<Stream>> streams, size_t eager_bytes, LinkEvents& events)
    : peer_(peer), eager_bytes_(eager_bytes), events_(events) {
  for (auto& stream : streams) {
    Lane lane;
    lane.stream = std::move(stream);
    lanes_.push_back(std::move(lane));
  }
}

// ---- sending

void Link::queue(Lane& lane, const LinkFrame& frame, const std::byte* payload, Transfer* transfer) {
  Out out;
  out.frame = frame;
  out.payload = payload;
  out.transfer = transfer;
  // The bytes of large messages let all else pass: an answer behind them would keep the peer from sending at the same time.
  bool passes = frame.kind != LinkFrame::data && frame.kind != LinkFrame::leave;
  auto waits = [](const Out& queued) { return queued.frame.kind == LinkFrame::data && queued.sent == 0; };
  lane.out.insert(passes ? std::find_if(lane.out.begin(), lane.out.end(), waits) : lane.out.end(), out);
  try {
    flush(lane);
  } catch (const IoError&) {
    // progress() meets it again, after reading what the peer sent before.
  }
}

void Link::send(Transfer& transfer) {
  LinkFrame frame;
  frame.tag = transfer.tag;
  frame.bytes = transfer.bytes;
  frame.signature = transfer.signature;
  transfer.done = false;
  transfer.moved = 0;
  uint64_t counted = is_collective(transfer.tag) ? 0 : transfer.bytes;
  if (transfer.bytes <= eager_bytes_ && (counted == 0 || eager_out_ + counted <= kEagerWindowBytes)) {
    eager_out_ += counted;
    queue(lanes_[0], frame, transfer.data, &transfer);
    return;
  }
  frame.kind = LinkFrame::offer;
  frame.sender_id = next_id_++;
  if (reader_) reader_->announce(transfer.data, transfer.bytes, frame);
  offered_[frame.sender_id] = &transfer;
  queue(lanes_[0], frame);
}

// Cut into frames that are dealt out over the streams, so that all of them carry a share.
void Link::queue_data(Transfer& transfer, uint64_t receiver_id) {
  LinkFrame frame;
  frame.kind = LinkFrame::data;
  frame.receiver_id = receiver_id;
  size_t lane = 0;
  for (size_t offset = 0; offset < transfer.bytes; offset += frame.bytes) {
    frame.offset = offset;
    frame.bytes = std::min<uint64_t>(transfer.bytes - offset, kMaxDataFrameBytes);
    queue(lanes_[lane], frame, transfer.data + offset, &transfer);
    lane = (lane + 1) % lanes_.size();
  }
}

// The peer is told now and then: it needs to know by the time its window is nearly used up.
void Link::taken(const LinkFrame& eager) {
  if (is_collective(eager.tag)) return;
  eager_taken_ += eager.bytes;
  if (eager_taken_ < kEagerWindowBytes / 2 || left_) return;
  LinkFrame frame;
  frame.kind = LinkFrame::credit;
  frame.bytes = std::exchange(eager_taken_, 0);
  queue(lanes_[0], frame);
}

void Link::send_leave() {
  LinkFrame frame;
  frame.kind = LinkFrame::leave;
  for (Lane& lane : lanes_) queue(lane, frame);
}

void Link::send_call(uint64_t tag, const Signature& signature) {
  LinkFrame frame;
  frame.kind = LinkFrame::call;
  frame.tag = tag;
  frame.signature = signature;
  queue(lanes_[0], frame);
}

bool Link::flush(Lane& lane) {
  bool moved = false;
  while (!lane.out.empty()) {
    Out& out = lane.out.front();
    bool carries = out.frame.kind == LinkFrame::eager || out.frame.kind == LinkFrame::data;
    size_t payload_bytes = carries ? out.frame.bytes : 0;
    size_t of_header = std::min(out.sent, sizeof(LinkFrame));
    size_t of_payload = out.sent - of_header;
    iovec pieces[2] = {{reinterpret_cast<std::byte*>(&out.frame) + of_header, sizeof(LinkFrame) - of_header},
                       {const_cast<std::byte*>(out.payload) + of_payload, payload_bytes - of_payload}};
    size_t written = lane.stream->write(pieces);
    if (written == 0) return moved;
    moved = true;
    out.sent += written;
    if (out.sent < sizeof(LinkFrame) + payload_bytes) continue;
    if (out.transfer) {
      out.transfer->moved += payload_bytes;
      if (out.transfer->moved == out.transfer->bytes) out.transfer->done = true;
    }
    lane.out.pop_front();
  }
  return moved;
}

// ---- receiving

void Link::accept(Transfer& transfer, const LinkFrame& offer) {
  transfer.moved = 0;
  transfer.bytes = offer.bytes;
  LinkFrame answer;
  answer.sender_id = offer.sender_id;
  if (offer.readable && !reader_) throw wire::Malformed(str("rank ", peer_, " of another host offers its memory to be read"));
  if (offer.readable) {
    reader_->read(peer_, offer, transfer.data);
    answer.kind = LinkFrame::taken;
    transfer.done = true;
  } else {
    answer.kind = LinkFrame::accept;
    answer.receiver_id = next_id_++;
    if (bulk_) {
      bulk_receives_.insert(answer.receiver_id);
      bulk_->receive(peer_, answer.receiver_id, transfer);
    } else {
      accepted_[answer.receiver_id] = &transfer;
    }
  }
  queue(lanes_[0], answer);
}

Transfer& Link::offered(uint64_t id) {
  auto found = offered_.find(id);
  if (found == offered_.end()) throw wire::Malformed(str("rank ", peer_, " answered an offer that was never made"));
  Transfer& transfer = *found->second;
  offered_.erase(found);
  return transfer;
}

void Link::on_frame_without_payload(Lane& lane) {
  const LinkFrame& frame = lane.in;
  switch (frame.kind) {
    case LinkFrame::offer:
      if (Transfer* transfer = events_.match(peer_, frame)) accept(*transfer, frame);
      else events_.keep(peer_, frame).complete = true;
      break;
    case LinkFrame::accept: {
      Transfer& transfer = offered(frame.sender_id);
      if (bulk_) {
        bulk_sends_[frame.receiver_id] = &transfer;
        bulk_->send(peer_, frame.receiver_id, transfer);
      } else {
        queue_data(transfer, frame.receiver_id);
      }
      break;
    }
    case LinkFrame::taken:
      offered(frame.sender_id).done = true;
      break;
    case LinkFrame::sent:
      if (bulk_receives_.erase(frame.receiver_id) == 0) throw wire::Malformed(str("rank ", peer_, " sent something that nobody asked for"));
      break;
    case LinkFrame::leave:
      lane.left = true;
      left_ = std::all_of(lanes_.begin(), lanes_.end(), [](const Lane& any) { return any.left; });
      if (left_) bulk_receives_.clear();
      break;
    case LinkFrame::call:
      events_.compare_call(peer_, frame);
      break;
    case LinkFrame::credit:
      if (frame.bytes > eager_out_) throw wire::Malformed(str("rank ", peer_, " took more than was sent"));
      eager_out_ -= frame.bytes;
      break;
    default:
      break;
  }
}

// Decides where the payload of lane.in goes. False when it must wait.
bool Link::begin_payload(Lane& lane) {
  lane.in_left = lane.in.bytes;
  lane.in_transfer = nullptr;
  lane.in_arrival = nullptr;
  switch (lane.in.kind) {
    case LinkFrame::eager:
      return begin_eager(lane);
    case LinkFrame::data:
      begin_data(lane);
      return true;
    default:
      lane.in_left = 0;
      return true;
  }
}

bool Link::begin_eager(Lane& lane) {
  if (Transfer* transfer = events_.match(peer_, lane.in)) {
    transfer->bytes = lane.in.bytes;
    lane.in_transfer = transfer;
    lane.in_data = transfer->data;
    return true;
  }
  if (is_collective(lane.in.tag) && !events_.may_keep(lane.in.bytes)) return false;
  lane.in_arrival = &events_.keep(peer_, lane.in);
  lane.in_arrival->payload.resize(lane.in.bytes);
  lane.in_data = lane.in_arrival->payload.data();
  return true;
}

void Link::begin_data(Lane& lane) {
  auto found = accepted_.find(lane.in.receiver_id);
  if (found == accepted_.end()) throw wire::Malformed(str("rank ", peer_, " sent data that nobody asked for"));
  Transfer& transfer = *found->second;
  if (lane.in.offset > transfer.bytes || lane.in.bytes > transfer.bytes - lane.in.offset) {
    throw wire::Malformed(str("rank ", peer_, " sent data beyond the end of a message"));
  }
  lane.in_transfer = &transfer;
  lane.in_data = transfer.data + lane.in.offset;
}

void Link::end_payload(Lane& lane) {
  switch (lane.in.kind) {
    case LinkFrame::eager:
      if (lane.in_transfer) {
        lane.in_transfer->done = true;
        taken(lane.in);
      } else {
        events_.arrival_complete(*lane.in_arrival);
      }
      break;
    case LinkFrame::data:
      lane.in_transfer->moved += lane.in.bytes;
      if (lane.in_transfer->moved == lane.in_transfer->bytes) {
        accepted_.erase(lane.in.receiver_id);
        lane.in_transfer->done = true;
      }
      break;
    default:
      on_frame_without_payload(lane);
  }
  lane.in_have = 0;
  lane.in_payload = false;
}

bool Link::receive(Lane& lane) {
  bool moved = false;
  for (;;) {
    if (lane.in_have < sizeof(LinkFrame)) {
      iovec piece{reinterpret_cast<std::byte*>(&lane.in) + lane.in_have, sizeof(LinkFrame) - lane.in_have};
      size_t got = lane.stream->read({&piece, 1});
      if (got == 0) return moved;
      lane.in_have += got;
      moved = true;
      if (lane.in_have < sizeof(LinkFrame)) continue;
      check_frame(lane.in);
    }
    if (!lane.in_payload) {
      if (!begin_payload(lane)) return moved;
      lane.in_payload = true;
    }
    while (lane.in_left != 0) {
      iovec piece{lane.in_data, lane.in_left};
      size_t got = lane.stream->read({&piece, 1});
      if (got == 0) return moved;
      lane.in_data += got;
      lane.in_left -= got;
      moved = true;
    }
    end_payload(lane);
    if (lane.left) return true;
  }
}

// ---- both

bool Link::progress() {
  bool moved = false;
  std::exception_ptr failure;
  for (Lane& lane : lanes_) {
    // A peer that is done leaves and closes the connections, perhaps before it got our answers. What it sent before is still there to be read, on
    // every lane: whether it has left or is lost, all of them say together.
    std::exception_ptr broken;
    try {
      moved |= flush(lane);
    } catch (const IoError&) {
      broken = std::current_exception();
    }
    if (!lane.left) moved |= receive(lane);
    if (!broken) continue;
    bool wanted = std::any_of(lane.out.begin(), lane.out.end(), [](const Out& out) { return out.transfer != nullptr; });
    if (!lane.left || wanted) failure = broken;
    else lane.out.clear();
  }
  if (failure) std::rethrow_exception(failure);
  return moved;
}

void Link::confirm_bulk_sends() {
  for (auto send = bulk_sends_.begin(); send != bulk_sends_.end();) {
    if (!send->second->done) {
      ++send;
      continue;
    }
    LinkFrame frame;
    frame.kind = LinkFrame::sent;
    frame.receiver_id = send->first;
    send = bulk_sends_.erase(send);
    queue(lanes_[0], frame);
  }
}

bool Link::flush_out() {
  bool empty = true;
  if (!bulk_receives_.empty()) progress();
  for (Lane& lane : lanes_) {
    flush(lane);
    empty = empty && lane.out.empty();
  }
  return empty && bulk_receives_.empty();
}

bool Link::has_unsent() const {
  return std::any_of(lanes_.begin(), lanes_.end(), [](const Lane& lane) { return !lane.out.empty(); });
}

bool Link::active() const {
  if (!offered_.empty() || !accepted_.empty() || !bulk_sends_.empty() || !bulk_receives_.empty()) return true;
  return std::any_of(lanes_.begin(), lanes_.end(), [](const Lane& lane) { return !lane.out.empty() || lane.in_have != 0; });
}

bool Link::needs_peer() const {
  auto carries_a_message = [](const Out& out) { return out.transfer != nullptr; };
  return !offered_.empty() || !accepted_.empty() ||
         std::any_of(lanes_.begin(), lanes_.end(), [&](const Lane& lane) { return std::any_of(lane.out.begin(), lane.out.end(), carries_a_message); });
}

void Link::add_poll_fds(std::vector<pollfd>& fds) const {
  for (const Lane& lane : lanes_) {
    if (lane.stream->fd() < 0) continue;
    short events = static_cast<short>((lane.left || lane.blocked() ? 0 : POLLIN) | (lane.out.empty() ? 0 : POLLOUT));
    // Of a connection that a peer has reset poll() always has something to say, also to who asks for nothing.
    if (!lane.left || events != 0) fds.push_back({lane.stream->fd(), events, 0});
  }
}

}  // namespace trireme::ccl
