// The lane itself. Only ofi_connect.cpp makes one.
#pragma once

#include <deque>
#include <list>
#include <memory>
#include <vector>

#include "trireme/ccl/fabric/link.h"
#include "trireme/ccl/fabric/ofi/ofi_endpoint.h"

namespace trireme::ccl {

// Tags, from the top: the receiver's id for the message, the sender's rank, the number of the piece. Ids are unique per pair of
// ranks; the oldest bits of an id may be cut off, for no two messages that are under way at once lie that far apart.
inline constexpr int kPieceBits = 16;
inline constexpr size_t kMaxPieces = size_t{1} << kPieceBits;
inline constexpr int kMinIdBits = 12;

// What all ranks agree on.
struct OfiLaneShape {
  int rank = 0;
  int rank_bits = 0;
  int tag_bits = 64;
  size_t piece_bytes = 0;
  size_t window = 1;  // pieces posted at once, per peer and direction
  bool register_memory = false;

  uint64_t tag_of(int sender, uint64_t receiver_id) const {
    uint64_t tag = ((receiver_id << rank_bits) | static_cast<uint64_t>(sender)) << kPieceBits;
    return tag_bits >= 64 ? tag : tag & ((uint64_t{1} << tag_bits) - 1);
  }
};

// Owns its endpoint and the registrations of what is under way. One thread at a time. Never blocks, not even in its destructor: a receive from
// a dead peer may be pending forever and is given up there. After an exception only stop() and destruction make sense.
class OfiLane final : public BulkLane {
 public:
  OfiLane(std::unique_ptr<OfiEndpoint> endpoint, OfiLaneShape shape, std::vector<fi_addr_t> peers);
  ~OfiLane() override;

  void send(int peer, uint64_t receiver_id, Transfer& transfer) override;
  void receive(int peer, uint64_t receiver_id, Transfer& transfer) override;
  bool progress() override;
  bool active() const override { return !pieces_.empty(); }
  bool may_sleep() override;
  void add_poll_fds(std::vector<pollfd>& fds) const override;
  void stop() override;

 private:
  // One libfabric operation. Stays where it is until its completion: the provider keeps notes in `context`.
  struct Piece {
    fi_context2 context{};  // first: completions name a piece by its address
    std::list<Piece>::iterator self;
    Transfer* transfer = nullptr;
    int peer = 0;
    bool sending = false;
    std::byte* data = nullptr;
    size_t bytes = 0;
    uint64_t tag = 0;
    OfiObject<fid_mr> registration;
  };
  // What goes to a peer, or comes from it, is posted in the order in which it was begun, at most a window of it at once. Both ends
  // begin the messages between them in the same order (that of the acceptances), so what one end has posted the other will post too: full
  // queues delay, and never lock up.
  struct Flow {
    std::deque<Piece*> waiting;
    size_t posted = 0;
  };

  void give_up_posted();
  void abandon();
  void begin(int peer, uint64_t receiver_id, Transfer& transfer, bool sending);
  Flow& flow_of(const Piece& piece) { return (piece.sending ? outgoing_ : incoming_)[static_cast<size_t>(piece.peer)]; }
  bool post_waiting(Flow& flow);
  bool post(Piece& piece);
  void complete(const fi_cq_tagged_entry& entry);
  [[noreturn]] void read_error();
  [[noreturn]] void fail(const Piece* piece, int error, const std::string& reason) const;
  const char* provider() const { return endpoint_->info().fabric_attr->prov_name; }

  std::unique_ptr<OfiEndpoint> endpoint_;  // null once stopped
  OfiLaneShape shape_;
  std::vector<fi_addr_t> peers_;
  std::list<Piece> pieces_;  // posted or waiting
  std::vector<Flow> outgoing_;  // by peer
  std::vector<Flow> incoming_;
  size_t waiting_ = 0;    // in all flows
  bool refused_ = false;  // the provider took less than a window: ask it again soon
  unsigned generation_;
};

}  // namespace trireme::ccl
