// All links of one rank, and the matching of messages with receives: by peer and tag, in order, from any source where asked.
#pragma once

#include <list>
#include <memory>
#include <string>
#include <vector>

#include "trireme/ccl/engine/engine.h"
#include "trireme/ccl/fabric/link.h"

namespace trireme::ccl {

// Owned by a communicator; one thread at a time. Never blocks.
class Messenger final : public Source, private LinkEvents {
 public:
  Messenger(Engine& engine, int rank, int size);

  void add_link(int peer, std::vector<std::unique_ptr<Stream>> streams, size_t eager_bytes, DirectReader* reader, BulkLane* bulk);

  // Posted; co_await done(transfer) for the end. The transfer must stay where it is until then.
  void send(Transfer& transfer);
  void receive(Transfer& transfer);
  // The end, after a failure: forgets what was posted, and from now on touches no transfer and moves nothing.
  void forget_all();

  // The collective that runs now: a message of the same number but another signature is a mismatch, seen on arrival. So is one of an earlier
  // number: that operation ended here without it.
  void set_current(uint64_t number, const Signature& signature);
  // The current collective has been waiting for long: at the next progress() it tells those whose messages it waits for what it is. Ranks that
  // wait for each other in different operations learn it so.
  void call_out() { calling_out_ = true; }

  // Whose messages the current collective waits for, and whether any message of it has come from there: who has called it and who, as far as
  // this rank can know, has not. In rank order.
  struct Awaited {
    int peer;
    bool heard;
  };
  std::vector<Awaited> awaited() const;

  void send_leave();
  // Something is queued that its links would not take.
  bool unsent() const;
  // Tries to send what is still queued, and to let peers end what they send us; true when there is nothing left.
  bool flush();

  bool progress() override;
  bool active() const override;
  bool may_sleep() override;
  void add_poll_fds(std::vector<pollfd>& fds) const override;

  class Done;
  Done done(Transfer& transfer);

 private:
  Transfer* match(int peer, const LinkFrame& frame) override;
  Arrival& keep(int peer, const LinkFrame& frame) override;
  void arrival_complete(Arrival& arrival) override;
  bool may_keep(size_t bytes) const override;
  void compare_call(int peer, const LinkFrame& call) override;

  static bool fits(const Transfer& receive, int peer, uint64_t tag);
  void check(int peer, const LinkFrame& frame, Transfer& receive) const;
  void take(Arrival& arrival, Transfer& receive);
  void check_left(const Transfer& transfer) const;
  [[noreturn]] void throw_left(int peer) const;
  void compare(int peer, const LinkFrame& frame) const;
  void hear(int peer, const LinkFrame& frame);
  void check_kept();
  void call_awaited();
  bool progress_bulk();

  Engine& engine_;
  int rank_;
  std::vector<std::unique_ptr<Link>> links_;  // by peer; null for this rank
  std::vector<BulkLane*> bulk_lanes_;
  std::list<Transfer*> receives_;
  std::list<Arrival> arrivals_;
  size_t kept_bytes_ = 0;
  bool ended_ = false;
  uint64_t current_number_ = 0;
  std::vector<uint64_t> heard_;  // by peer: the last collective of which it has sent anything
  // Of the current collective and those before it, by their numbers modulo: peers may be that far behind.
  static constexpr size_t kRemembered = 16;
  Signature signatures_[kRemembered];
  std::vector<std::pair<int, LinkFrame>> early_calls_;  // by peer, of a collective that this rank has not come to
  std::vector<int> called_;                             // whom this rank has told about the current one
  bool calling_out_ = false;
  bool recheck_ = false;  // what was kept for later may belong to a collective that is current now, or over
};

class Messenger::Done final : public Waiter {
 public:
  Done(Messenger& messenger, Transfer& transfer) : messenger_(messenger), transfer_(transfer) {}
  bool ready() override { return transfer_.done; }
  std::string describe() const override;
  int awaited_rank() const override { return transfer_.peer; }
  bool await_ready() { return messenger_.engine_.until(*this).await_ready(); }
  void await_suspend(std::coroutine_handle<> handle) { messenger_.engine_.until(*this).await_suspend(handle); }
  void await_resume() { messenger_.engine_.until(*this).await_resume(); }

 private:
  Messenger& messenger_;
  Transfer& transfer_;
};

}  // namespace trireme::ccl
