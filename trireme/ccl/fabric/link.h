// The protocol between two ranks: frames over one or more byte streams. Small messages go at once; large ones are offered and wait until the
// receiver has a place for them, so no message ever blocks another behind it, and nothing large is buffered.
#pragma once

#include <poll.h>

#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "trireme/ccl/engine/stream.h"
#include "trireme/ccl/fabric/link_frame.h"
#include "trireme/ccl/fabric/transfer.h"

namespace trireme::ccl {

// Reads a message straight out of the sender's memory, where the sender is on this host.
class DirectReader {
 public:
  virtual ~DirectReader() = default;
  // How the peer can read [data, data + bytes): fills address, region and readable.
  virtual void announce(const void* data, size_t bytes, LinkFrame& offer) = 0;
  virtual void read(int peer, const LinkFrame& offer, void* data) = 0;
};

// Moves the bytes of large messages by other means than the link's streams: libfabric. Both ends name the message by the receiver's id.
class BulkLane {
 public:
  virtual ~BulkLane() = default;
  virtual void send(int peer, uint64_t receiver_id, Transfer& transfer) = 0;
  virtual void receive(int peer, uint64_t receiver_id, Transfer& transfer) = 0;
  // Sets `done` of what is complete; true if anything was. Throws when the fabric failed.
  virtual bool progress() = 0;
  virtual bool active() const = 0;
  // Whether the descriptors of add_poll_fds, from now on, announce everything that progress() could do. False where the fabric has
  // none, or has something to do at once: then the driver must look again by itself. Ask right before sleeping, after progress().
  virtual bool may_sleep() = 0;
  virtual void add_poll_fds(std::vector<pollfd>& fds) const = 0;
  // The end, after a failure: no transfer and none of their memory is touched from now on.
  virtual void stop() = 0;
};

// A message that came before anybody asked for it.
struct Arrival {
  int peer = 0;
  LinkFrame frame;
  std::vector<std::byte> payload;  // of an eager message
  bool complete = false;
  Transfer* taker = nullptr;       // matched while the payload was still coming
  Transfer* own = nullptr;         // a message of this rank to itself: the send
};

// What a link tells its messenger.
class LinkEvents {
 public:
  virtual ~LinkEvents() = default;
  // The receive that this message is for, or null: then it is kept as an arrival.
  virtual Transfer* match(int peer, const LinkFrame& frame) = 0;
  virtual Arrival& keep(int peer, const LinkFrame& frame) = 0;
  virtual void arrival_complete(Arrival& arrival) = 0;
  // Whether another `bytes` of a collective may be kept; else the link stops reading until something is taken.
  virtual bool may_keep(size_t bytes) const = 0;
  // The peer says what it has called.
  virtual void compare_call(int peer, const LinkFrame& call) = 0;
};

// Owns its streams. One thread at a time. Never blocks. An exception ends the communicator.
class Link {
 public:
  Link(int peer, std::vector<std::unique_ptr<Stream>> streams, size_t eager_bytes, LinkEvents& events);

  int peer() const { return peer_; }
  void set_direct_reader(DirectReader* reader) { reader_ = reader; }
  void set_bulk_lane(BulkLane* bulk) { bulk_ = bulk; }

  void send(Transfer& transfer);
  // `transfer` takes the message that `offer` announced.
  void accept(Transfer& transfer, const LinkFrame& offer);
  // An eager message of the peer has found its receive.
  void taken(const LinkFrame& eager);
  void send_leave();
  void send_call(uint64_t tag, const Signature& signature);

  bool progress();
  // Tells the peer which of our sends by the bulk lane are complete. Before their posters learn it and let go of them.
  void confirm_bulk_sends();
  // Sends what is queued; receives only where the peer still needs us; true when neither is left.
  bool flush_out();
  bool has_unsent() const;
  // Anything half sent, or promised by or to the peer.
  bool active() const;
  // On every stream: whatever it sent has come.
  bool has_left() const { return left_; }
  // A send that the peer has not taken, or a receive that it has not filled: with a peer that has left, these never end.
  // Those that a bulk lane carries are not among them: its provider reports them, or the operation's own timeout does.
  bool needs_peer() const;
  void add_poll_fds(std::vector<pollfd>& fds) const;

 private:
  struct Out {
    LinkFrame frame;
    const std::byte* payload = nullptr;
    Transfer* transfer = nullptr;  // told how much has been sent
    size_t sent = 0;               // of frame and payload together
  };
  struct Lane {
    std::unique_ptr<Stream> stream;
    std::deque<Out> out;
    LinkFrame in;
    size_t in_have = 0;  // of the header
    bool in_payload = false;
    std::byte* in_data = nullptr;
    size_t in_left = 0;
    Transfer* in_transfer = nullptr;
    Arrival* in_arrival = nullptr;
    bool left = false;  // the peer has said its last word on it
    // What has come must wait for a place.
    bool blocked() const { return in_have == sizeof(LinkFrame) && !in_payload; }
  };

  void queue(Lane& lane, const LinkFrame& frame, const std::byte* payload = nullptr, Transfer* transfer = nullptr);
  void queue_data(Transfer& transfer, uint64_t receiver_id);
  bool flush(Lane& lane);
  bool receive(Lane& lane);
  bool begin_payload(Lane& lane);
  bool begin_eager(Lane& lane);
  void begin_data(Lane& lane);
  void on_frame_without_payload(Lane& lane);
  void end_payload(Lane& lane);
  Transfer& offered(uint64_t id);

  int peer_;
  size_t eager_bytes_;
  LinkEvents& events_;
  DirectReader* reader_ = nullptr;
  BulkLane* bulk_ = nullptr;
  std::vector<Lane> lanes_;
  std::map<uint64_t, Transfer*> offered_;   // our sends that wait for the peer
  std::map<uint64_t, Transfer*> accepted_;  // our receives whose bytes are coming
  // By the bulk lane. A fabric may need our progress for the end of a send after we have all of its bytes (an acknowledgement to get
  // out), so a receive counts as under way here until the peer says that its send is complete.
  std::map<uint64_t, Transfer*> bulk_sends_;  // by the receiver's id
  std::set<uint64_t> bulk_receives_;
  uint64_t next_id_ = 1;
  // Bytes of point-to-point messages: sent at once and not taken by the peer, as far as we know; and taken here without the peer's knowing.
  uint64_t eager_out_ = 0, eager_taken_ = 0;
  bool left_ = false;
};

}  // namespace trireme::ccl
