// Messages between two ranks over a stream that splits them at awkward places.
#include "trireme/ccl/fabric/messenger.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <deque>
#include <memory>
#include <numeric>

#include "trireme/base/error.h"
#include "trireme/ccl/bootstrap/wire.h"

namespace trireme::ccl {
namespace {

using Bytes = std::deque<uint8_t>;

// One end of a pipe that takes and gives at most `limit` bytes at a time.
enum class Way { open, full, reset };

class PipeEnd final : public Stream {
 public:
  PipeEnd(Bytes& out, Bytes& in, size_t limit, const Way& way) : out_(out), in_(in), limit_(limit), way_(way) {}
  size_t write(std::span<const iovec> pieces) override {
    if (way_ == Way::reset) throw IoError("write: Connection reset by peer");
    if (way_ == Way::full) return 0;
    size_t taken = 0;
    for (const iovec& piece : pieces) {
      auto data = static_cast<const uint8_t*>(piece.iov_base);
      size_t bytes = std::min(piece.iov_len, limit_ - taken);
      out_.insert(out_.end(), data, data + bytes);
      taken += bytes;
    }
    return taken;
  }
  size_t read(std::span<const iovec> pieces) override {
    size_t bytes = std::min({pieces[0].iov_len, limit_, in_.size()});
    std::copy_n(in_.begin(), bytes, static_cast<uint8_t*>(pieces[0].iov_base));
    in_.erase(in_.begin(), in_.begin() + static_cast<long>(bytes));
    return bytes;
  }
  int fd() const override { return -1; }

 private:
  Bytes& out_;
  Bytes& in_;
  size_t limit_;
  const Way& way_;
};

class MessengerTest : public testing::TestWithParam<size_t> {
 protected:
  static constexpr size_t kEager = 100;

  void SetUp() override {
    for (int lane = 0; lane < 2; ++lane) pipes_.emplace_back(), pipes_.emplace_back();
    connect(a_, 1, 0);
    connect(b_, 0, 1);
  }
  void connect(Messenger& messenger, int peer, size_t side) {
    std::vector<std::unique_ptr<Stream>> streams;
    for (size_t lane = 0; lane < 2; ++lane) {
      streams.push_back(std::make_unique<PipeEnd>(pipes_[2 * lane + side], pipes_[2 * lane + 1 - side], GetParam(), ways_[side]));
    }
    messenger.add_link(peer, std::move(streams), kEager, nullptr, nullptr);
  }
  Transfer message(int peer, uint64_t tag, std::vector<uint8_t>& data) {
    Transfer transfer;
    transfer.peer = peer;
    transfer.tag = tag;
    transfer.data = reinterpret_cast<std::byte*>(data.data());
    transfer.bytes = data.size();
    return transfer;
  }
  void run() {
    while (a_.progress() | b_.progress()) {
    }
  }
  static std::vector<uint8_t> pattern(size_t bytes, int seed) {
    std::vector<uint8_t> data(bytes);
    for (size_t i = 0; i < bytes; ++i) data[i] = static_cast<uint8_t>(i * 31 + static_cast<size_t>(seed));
    return data;
  }

  std::deque<Bytes> pipes_;
  Way ways_[2] = {};  // from a_, from b_
  Engine engine_a_, engine_b_;
  Messenger a_{engine_a_, 0, 2}, b_{engine_b_, 1, 2};
};

TEST_P(MessengerTest, EveryLengthBothWaysExpectedOrNot) {
  for (size_t bytes : {size_t{0}, size_t{1}, kEager, kEager + 1, size_t{3000000}}) {
    if (bytes > 10000 && GetParam() < 1000) continue;
    for (bool expected : {true, false}) {
      std::vector<uint8_t> one = pattern(bytes, 1), two = pattern(bytes, 2), got_one(bytes), got_two(bytes);
      Transfer send_a = message(1, 7, one), send_b = message(0, 8, two);
      Transfer receive_b = message(0, 7, got_one), receive_a = message(1, 8, got_two);
      if (expected) a_.receive(receive_a), b_.receive(receive_b);
      a_.send(send_a);
      b_.send(send_b);
      run();
      if (!expected) a_.receive(receive_a), b_.receive(receive_b);
      run();
      ASSERT_TRUE(send_a.done && send_b.done && receive_a.done && receive_b.done) << bytes;
      EXPECT_EQ(got_one, one);
      EXPECT_EQ(got_two, two);
      EXPECT_FALSE(a_.active() || b_.active());
    }
  }
}

TEST_P(MessengerTest, TagsMatchInOrder) {
  std::vector<uint8_t> first = pattern(50, 1), second = pattern(50, 2), other = pattern(500, 3), x(50), y(50), z(500);
  Transfer s1 = message(1, 5, first), s2 = message(1, 5, second), s3 = message(1, 6, other);
  for (Transfer* send : {&s1, &s2, &s3}) a_.send(*send);
  run();
  Transfer r3 = message(kAnySource, 6, z), r1 = message(0, 5, x), r2 = message(0, 5, y);
  for (Transfer* receive : {&r3, &r1, &r2}) b_.receive(*receive);
  run();
  EXPECT_EQ(x, first);
  EXPECT_EQ(y, second);
  EXPECT_EQ(z, other);
  EXPECT_EQ(r3.peer, 0);
}

// Messages that nobody asks for keep neither a collective's from coming, nor each other from coming in order.
TEST_P(MessengerTest, ManyUnexpectedMessagesLeaveRoomForACollective) {
  if (GetParam() < 1000) return;
  constexpr size_t kMessages = 3 * kEagerWindowBytes / kEager;
  std::vector<uint8_t> small = pattern(kEager, 1), of_collective = pattern(10, 2), got(10);
  std::vector<Transfer> sends(kMessages, message(1, 5, small));
  for (Transfer& send : sends) a_.send(send);
  Transfer send = message(1, collective_tag(1, 0), of_collective), receive = message(0, collective_tag(1, 0), got);
  a_.send(send);
  b_.receive(receive);
  run();
  ASSERT_TRUE(receive.done);
  EXPECT_EQ(got, of_collective);
  EXPECT_FALSE(sends.back().done);

  std::vector<uint8_t> room(kEager);
  for (size_t i = 0; i < kMessages; ++i) {
    std::fill(room.begin(), room.end(), 0);
    Transfer taken = message(0, 5, room);
    b_.receive(taken);
    while (!taken.done && (a_.progress() | b_.progress())) {
    }
    ASSERT_TRUE(taken.done && room == small) << i;
  }
  run();
  EXPECT_TRUE(sends.back().done);
  EXPECT_FALSE(a_.active() || b_.active());

  // The window is open again.
  Transfer again = message(1, 5, small);
  a_.send(again);
  run();
  EXPECT_TRUE(again.done);
}

TEST_P(MessengerTest, AnotherLengthIsAMismatch) {
  std::vector<uint8_t> data = pattern(40, 1), room(30);
  Transfer send = message(1, 5, data), receive = message(0, 5, room);
  b_.receive(receive);
  a_.send(send);
  EXPECT_THROW(run(), Mismatch);
}

TEST_P(MessengerTest, AnotherOperationIsSeenOnArrival) {
  Signature mine, theirs;
  theirs.kind = static_cast<uint8_t>(OpKind::broadcast);
  b_.set_current(3, mine);
  std::vector<uint8_t> data = pattern(10, 1), room(10);
  Transfer send = message(1, collective_tag(3, 0), data), receive = message(0, collective_tag(3, 9), room);
  send.signature = theirs;
  receive.signature = mine;
  b_.receive(receive);
  a_.send(send);
  EXPECT_THROW(run(), Mismatch);
}

// When its operation is over and nobody has taken it, the ranks disagreed.
TEST_P(MessengerTest, AMessageThatCameTooEarlyIsComparedLater) {
  Signature mine, theirs;
  theirs.kind = static_cast<uint8_t>(OpKind::broadcast);
  std::vector<uint8_t> data = pattern(10, 1);
  Transfer send = message(1, collective_tag(3, 0), data);
  send.signature = theirs;
  b_.set_current(2, mine);
  a_.send(send);
  EXPECT_NO_THROW(run());
  b_.set_current(3, mine);
  EXPECT_THROW(run(), Mismatch);
}

TEST_P(MessengerTest, AMessageThatCameTooLateIsComparedToo) {
  Signature mine, theirs;
  theirs.kind = static_cast<uint8_t>(OpKind::broadcast);
  std::vector<uint8_t> data = pattern(10, 1);
  Transfer send = message(1, collective_tag(3, 0), data);
  send.signature = theirs;
  b_.set_current(3, mine);
  b_.set_current(4, mine);
  a_.send(send);
  EXPECT_THROW(run(), Mismatch);
}

// Both wait, for different things: neither sends anything but what it called.
TEST_P(MessengerTest, RanksThatWaitForEachOtherCompareTheirCalls) {
  Signature mine, theirs;
  theirs.kind = static_cast<uint8_t>(OpKind::broadcast);
  std::vector<uint8_t> room(10), other_room(10);
  Transfer receive = message(1, collective_tag(3, 0), room), other = message(0, collective_tag(3, 0), other_room);
  receive.signature = mine;
  other.signature = theirs;
  a_.set_current(3, mine);
  a_.receive(receive);
  a_.call_out();
  EXPECT_NO_THROW(run());  // b has not come to it yet
  b_.set_current(3, theirs);
  b_.receive(other);
  EXPECT_THROW(run(), Mismatch);
}

TEST_P(MessengerTest, RanksThatAgreeMayCallOut) {
  Signature same;
  std::vector<uint8_t> data = pattern(10, 1), room(10);
  Transfer receive = message(0, collective_tag(3, 0), room), send = message(1, collective_tag(3, 0), data);
  b_.set_current(3, same);
  b_.receive(receive);
  b_.call_out();
  run();
  a_.set_current(3, same);
  a_.send(send);
  run();
  EXPECT_TRUE(receive.done);
  EXPECT_EQ(room, data);
}

// Each of two ranks has much for the other. If the one's answer stood behind its own data, the other could send only after it.
TEST_P(MessengerTest, AnswersPassWaitingData) {
  std::vector<uint8_t> data = pattern(4 * kMaxDataFrameBytes, 1), back = pattern(kEager + 1, 2), room(data.size()), room_back(back.size());
  Transfer send = message(1, 5, data), receive = message(0, 5, room);
  Transfer send_back = message(0, 6, back), receive_back = message(1, 6, room_back);
  a_.receive(receive_back);
  b_.receive(receive);
  a_.send(send);
  b_.progress();  // accepts
  ways_[0] = Way::full;
  a_.progress();  // has data to send, and cannot
  b_.send(send_back);
  a_.progress();  // accepts
  ASSERT_TRUE(pipes_[0].empty());
  ways_[0] = Way::open;
  a_.progress();
  ASSERT_GT(pipes_[0].size(), sizeof(LinkFrame));
  EXPECT_EQ(pipes_[0][offsetof(LinkFrame, kind)], LinkFrame::accept);
  run();
  EXPECT_EQ(room, data);
  EXPECT_EQ(room_back, back);
}

TEST_P(MessengerTest, APeerThatLeftIsMissedOnlyWhereItIsNeeded) {
  a_.send_leave();
  std::vector<uint8_t> room(10);
  Transfer receive = message(0, 5, room);
  b_.receive(receive);
  EXPECT_THROW(run(), PeerLost);
}

TEST_P(MessengerTest, APeerThatLeftTakesItsOfferAlong) {
  std::vector<uint8_t> data = pattern(kEager + 1, 1), room(data.size());
  Transfer send = message(1, 5, data), receive = message(0, 5, room);
  a_.send(send);
  a_.send_leave();
  run();
  EXPECT_THROW(b_.receive(receive), PeerLost);
}

TEST_P(MessengerTest, APeerThatLeftDoesNotSendWhatItWasAskedFor) {
  std::vector<uint8_t> data = pattern(kEager + 1, 1), room(data.size());
  Transfer send = message(1, 5, data), receive = message(0, 5, room);
  b_.receive(receive);
  a_.send(send);
  a_.send_leave();
  while (a_.progress()) {
  }
  EXPECT_THROW(while (b_.progress()) {}, PeerLost);  // it would ask for the bytes only now
}

TEST_P(MessengerTest, APeerThatLeftTakesNothing) {
  std::vector<uint8_t> data = pattern(kEager + 1, 1);
  Transfer send = message(1, 5, data);
  b_.send_leave();
  a_.send(send);
  EXPECT_THROW(run(), PeerLost);
}

// One stream may be ahead of another: what a peer sent on the slower one before it left must still come.
TEST_P(MessengerTest, APeerThatLeftHasSentEverythingOnEveryStream) {
  std::vector<uint8_t> data = pattern(2 * kMaxDataFrameBytes, 1), room(data.size());
  Transfer send = message(1, 5, data), receive = message(0, 5, room);
  b_.receive(receive);
  a_.send(send);
  Bytes held, &second_stream = pipes_[2];
  auto hold = [&] {
    held.insert(held.end(), second_stream.begin(), second_stream.end());
    second_stream.clear();
  };
  bool left = false;
  for (bool moved = true; moved;) {
    moved = a_.progress();
    if (send.done && !left) a_.send_leave(), moved = left = true;
    hold();
    moved |= b_.progress();
  }
  EXPECT_TRUE(left && !receive.done);
  second_stream.swap(held);
  run();
  EXPECT_TRUE(receive.done);
  EXPECT_EQ(room, data);
}

// It closed the connections, and our answers to it cannot be written: what it sent before is there all the same.
TEST_P(MessengerTest, APeerThatLeftNeedsNoAnswers) {
  std::vector<uint8_t> data = pattern(kEager, 1), room(data.size());
  const uint64_t tag = kCollectiveTag | 5;
  Transfer send = message(1, tag, data), receive = message(0, tag, room);
  b_.set_current(3, Signature{});
  b_.receive(receive);
  ways_[1] = Way::full;
  b_.call_out();
  b_.progress();
  EXPECT_TRUE(b_.unsent());
  a_.send(send);
  a_.send_leave();
  while (a_.progress()) {
  }
  ways_[1] = Way::reset;
  while (b_.progress()) {
  }
  EXPECT_TRUE(receive.done);
  EXPECT_EQ(room, data);
  std::vector<uint8_t> more = pattern(kEager, 2);
  Transfer late = message(0, 6, more);
  EXPECT_THROW((b_.send(late), b_.progress()), PeerLost) << "what the peer did not wait for is lost";
}

TEST_P(MessengerTest, NonsenseIsRefused) {
  std::vector<uint8_t> nonsense(sizeof(LinkFrame), 0x5a);
  pipes_[0].insert(pipes_[0].end(), nonsense.begin(), nonsense.end());
  EXPECT_THROW(b_.progress(), PeerLost);
}

TEST_P(MessengerTest, DataNobodyAskedForIsRefused) {
  LinkFrame frame;
  frame.kind = LinkFrame::data;
  frame.bytes = 1000;
  frame.receiver_id = 99;
  auto bytes = reinterpret_cast<const uint8_t*>(&frame);
  pipes_[0].insert(pipes_[0].end(), bytes, bytes + sizeof frame);
  EXPECT_THROW(b_.progress(), PeerLost);
}

INSTANTIATE_TEST_SUITE_P(Pieces, MessengerTest, testing::Values(1, 7, 100, 65536));

}  // namespace
}  // namespace trireme::ccl
