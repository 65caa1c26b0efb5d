#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>

#include <algorithm>
#include <cerrno>

#include "trireme/base/error.h"
#include "trireme/ccl/bootstrap/forked_child.h"
#include "trireme/ccl/bootstrap/wire.h"
#include "trireme/ccl/fabric/ofi/ofi_lane_impl.h"

namespace trireme::ccl {
namespace {

bool means_lost_connection(int error) {
  switch (error) {
    case FI_ECONNREFUSED:
    case FI_ECONNRESET:
    case FI_ECONNABORTED:
    case FI_ENOTCONN:
    case FI_ESHUTDOWN:
    case FI_EHOSTUNREACH:
    case FI_ETIMEDOUT:
    case EPIPE:
      return true;
    default:
      return false;
  }
}

}  // namespace

OfiLane::OfiLane(std::unique_ptr<OfiEndpoint> endpoint, OfiLaneShape shape, std::vector<fi_addr_t> peers)
    : endpoint_(std::move(endpoint)),
      shape_(shape),
      peers_(std::move(peers)),
      outgoing_(peers_.size()),
      incoming_(peers_.size()),
      generation_(fork_generation()) {}

OfiLane::~OfiLane() {
  if (generation_ == fork_generation()) {
    stop();
    return;
  }
  // A forked child: to close what it shares with its parent would end the parent's connections.
  abandon();
}

void OfiLane::stop() {
  if (!endpoint_) return;
  if (!pieces_.empty() && endpoint_->crashes_when_closed_busy()) {
    abandon();
  } else {
    if (!pieces_.empty()) give_up_posted();
    // Closing does not wait for peers. Contexts and registrations must outlive it.
    endpoint_->close();
    pieces_.clear();
    endpoint_.reset();
  }
  outgoing_.clear();
  incoming_.clear();
  waiting_ = 0;
}

// Leaves the provider as little as possible to sort out while it closes.
void OfiLane::give_up_posted() {
  for (Piece& piece : pieces_) {
    if (!piece.sending) fi_cancel(&endpoint_->endpoint()->fid, &piece.context);
  }
  for (size_t round = 0; round < pieces_.size(); ++round) {
    fi_cq_tagged_entry entry;
    fi_cq_err_entry error{};
    if (fi_cq_read(endpoint_->completions(), &entry, 1) == -FI_EAVAIL) fi_cq_readerr(endpoint_->completions(), &error, 0);
  }
  if (!endpoint_->binds_registrations()) return;
  for (Piece& piece : pieces_) piece.registration.reset();
}

// Leaves the endpoint open to the end of the process. It does nothing without our polling, so neither transfers nor their memory are
// touched again.
void OfiLane::abandon() {
  for (Piece& piece : pieces_) static_cast<void>(piece.registration.release());
  pieces_.clear();
  static_cast<void>(endpoint_.release());
}

// ---- posting

void OfiLane::send(int peer, uint64_t receiver_id, Transfer& transfer) { begin(peer, receiver_id, transfer, true); }

void OfiLane::receive(int peer, uint64_t receiver_id, Transfer& transfer) { begin(peer, receiver_id, transfer, false); }

void OfiLane::begin(int peer, uint64_t receiver_id, Transfer& transfer, bool sending) {
  if (!endpoint_) return;
  size_t count = std::max<size_t>(1, (transfer.bytes + shape_.piece_bytes - 1) / shape_.piece_bytes);
  if (count > kMaxPieces) {
    throw Unsupported(str("rank ", shape_.rank, ": a message of ", transfer.bytes, " bytes ", sending ? "to" : "from", " rank ", peer,
                          " is too long for provider ", provider(), "; at most ", kMaxPieces * shape_.piece_bytes, " are possible"));
  }
  transfer.moved = 0;
  uint64_t tag = shape_.tag_of(sending ? shape_.rank : peer, receiver_id);
  for (size_t i = 0; i < count; ++i) {
    size_t offset = i * shape_.piece_bytes;
    Piece& piece = pieces_.emplace_back();
    piece.self = std::prev(pieces_.end());
    piece.transfer = &transfer;
    piece.peer = peer;
    piece.sending = sending;
    piece.data = transfer.data + offset;
    piece.bytes = std::min(shape_.piece_bytes, transfer.bytes - offset);
    piece.tag = tag + i;
    if (endpoint_->must_register() || shape_.register_memory) piece.registration = endpoint_->register_memory(piece.data, piece.bytes);
    flow_of(piece).waiting.push_back(&piece);
    ++waiting_;
  }
  post_waiting((sending ? outgoing_ : incoming_)[static_cast<size_t>(peer)]);
}

bool OfiLane::post_waiting(Flow& flow) {
  bool any = false;
  while (!flow.waiting.empty() && flow.posted < shape_.window) {
    if (!post(*flow.waiting.front())) {
      refused_ = true;
      break;
    }
    flow.waiting.pop_front();
    ++flow.posted;
    --waiting_;
    any = true;
  }
  return any;
}

// False when the provider has no room for it now.
bool OfiLane::post(Piece& piece) {
  fid_ep* endpoint = endpoint_->endpoint();
  void* descriptor = piece.registration ? fi_mr_desc(piece.registration.get()) : nullptr;
  // The tag names the sender, so a receive need not: not every provider can tell senders apart.
  ssize_t result = piece.sending ? fi_tsend(endpoint, piece.data, piece.bytes, descriptor, peers_[piece.peer], piece.tag, &piece.context)
                                 : fi_trecv(endpoint, piece.data, piece.bytes, descriptor, FI_ADDR_UNSPEC, piece.tag, 0, &piece.context);
  if (result == -FI_EAGAIN) return false;
  if (result != 0) fail(&piece, static_cast<int>(-result), endpoint_->library().text_of(result));
  return true;
}

// ---- progress

bool OfiLane::progress() {
  if (!endpoint_) return false;
  constexpr size_t kBatch = 16;
  bool any = false;
  for (;;) {
    fi_cq_tagged_entry entries[kBatch];
    ssize_t count = fi_cq_read(endpoint_->completions(), entries, kBatch);
    if (count == -FI_EAGAIN || count == -FI_EINTR || count == 0) break;
    if (count == -FI_EAVAIL) read_error();
    if (count < 0) fail(nullptr, static_cast<int>(-count), endpoint_->library().text_of(count));
    for (ssize_t i = 0; i < count; ++i) complete(entries[i]);
    any = true;
  }
  refused_ = false;
  for (size_t peer = 0; waiting_ != 0 && peer < peers_.size(); ++peer) {
    any |= post_waiting(incoming_[peer]);
    any |= post_waiting(outgoing_[peer]);
  }
  return any;
}

void OfiLane::complete(const fi_cq_tagged_entry& entry) {
  Piece& piece = *reinterpret_cast<Piece*>(entry.op_context);
  if (!piece.sending && entry.len != piece.bytes) {
    throw wire::Malformed(str("rank ", shape_.rank, ": rank ", piece.peer, " sent ", entry.len, " bytes by libfabric where ", piece.bytes, " were due"));
  }
  Transfer& transfer = *piece.transfer;
  transfer.moved += piece.bytes;
  if (transfer.moved == transfer.bytes) transfer.done = true;
  --flow_of(piece).posted;
  pieces_.erase(piece.self);
}

void OfiLane::read_error() {
  fi_cq_err_entry entry{};
  if (fi_cq_readerr(endpoint_->completions(), &entry, 0) < 0) fail(nullptr, FI_EOTHER, "an error that cannot be read");
  char buffer[256] = {};
  const char* text = fi_cq_strerror(endpoint_->completions(), entry.prov_errno, entry.err_data, buffer, sizeof buffer);
  std::string reason = endpoint_->library().text_of(entry.err);
  if (text && *text && reason != text) reason += str(" (", text, ")");
  fail(reinterpret_cast<Piece*>(entry.op_context), entry.err, reason);
}

void OfiLane::fail(const Piece* piece, int error, const std::string& reason) const {
  std::string where = str("libfabric, provider ", provider(), ": ", reason);
  if (!piece) throw IoError(str("rank ", shape_.rank, ": ", where));
  std::string what = str("rank ", shape_.rank, ": ", piece->sending ? "send of " : "receive of ", piece->bytes, " bytes ",
                         piece->sending ? "to" : "from", " rank ", piece->peer, ": ", where);
  if (means_lost_connection(error)) throw PeerLost(piece->peer, what);
  throw IoError(what);
}

// ---- waiting

bool OfiLane::may_sleep() { return !endpoint_ || (!refused_ && endpoint_->may_wait()); }

void OfiLane::add_poll_fds(std::vector<pollfd>& fds) const {
  if (endpoint_ && endpoint_->wait_fd() >= 0) fds.push_back({endpoint_->wait_fd(), POLLIN, 0});
}

}  // namespace trireme::ccl
