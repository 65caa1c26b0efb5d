// Ranks that close their communicators while others still want something of them.
#include <atomic>
#include <chrono>

#include "trireme/base/error.h"
#include "trireme/ccl/comm/test_operations.h"
#include "trireme/ccl/comm/test_world.h"

namespace trireme::ccl {
namespace {

using std::chrono::milliseconds;

class Leaving : public testing::TestWithParam<Wiring> {};

CommunicatorOptions patient() {
  CommunicatorOptions options;
  options.timeout = milliseconds(20000);
  return options;
}

TEST_P(Leaving, IsNoErrorUntilItIsMissed) {
  auto world = make_world(3, GetParam(), patient());
  std::atomic<bool> gone{false};
  std::atomic<int> talked{0};
  on_ranks(3, [&](int rank) {
    std::vector<float> data(1000, 1.0f);
    world[rank]->submit(allreduce_of(data)).wait();
    EXPECT_EQ(data[0], 3.0f);
    if (rank == 1) {
      world[rank].reset();
      gone = true;
      return;
    }
    while (!gone) std::this_thread::sleep_for(milliseconds(1));
    // The two that remain can still talk to each other.
    float value = 7;
    Operation message;
    message.kind = rank == 0 ? OpKind::send : OpKind::recv;
    message.type = DataType::float32;
    message.count = 1;
    message.peer = 2 - rank;
    message.send_buffer = message.recv_buffer = &value;
    world[rank]->submit(message).wait();
    ++talked;
    while (talked < 2) std::this_thread::sleep_for(milliseconds(1));
    std::string text = failure_of<PeerLost>(*world[rank], allreduce_of(data));
    EXPECT_TRUE(contains(text, "rank 1 has left")) << text;
  });
}

// Nobody would carry it out any more: whoever still waits for it learns that.
TEST_P(Leaving, EndsWhatIsPending) {
  auto world = make_world(2, GetParam());
  std::vector<float> data(100000, 1.0f);
  Request receive = world[0]->submit(message_op(OpKind::recv, 1, data));
  std::thread waiter([&] { EXPECT_THROW(receive.wait(), Aborted); });
  std::this_thread::sleep_for(milliseconds(20));
  world[0].reset();
  waiter.join();
  EXPECT_THROW(receive.test(), Aborted);
  // It left in good order.
  EXPECT_EQ(world[1]->error(), nullptr);
}

// Its buffer is the caller's again, and must not be read: neither an offer that was seen before it left, nor one that was not.
TEST_P(Leaving, TakesItsUnfinishedMessagesAlong) {
  for (bool seen : {true, false}) {
    auto world = make_world(2, GetParam(), patient());
    std::vector<float> data(100000, 1.0f), room(data.size());
    Request send = world[1]->submit(message_op(OpKind::send, 0, data));
    if (seen) {
      // Rank 0 reads what has come while it waits for something else.
      std::vector<float> small(1), other(1);
      Request receive = world[0]->submit(message_op(OpKind::recv, 1, other, 1));
      world[1]->submit(message_op(OpKind::send, 0, small, 1)).wait();
      while (!receive.test()) {
      }
    }
    world[1].reset();
    EXPECT_THROW(send.wait(), Aborted);
    data = {};
    std::string text = failure_of<PeerLost>(*world[0], message_op(OpKind::recv, 1, room));
    EXPECT_TRUE(contains(text, "rank 1 has left")) << text;
  }
}

TEST_P(Leaving, EndsWhatOthersSendToIt) {
  for (size_t count : {size_t{1000}, size_t{100000}}) {
    auto world = make_world(2, GetParam(), patient());
    std::vector<float> data(count, 1.0f);
    world[1].reset();
    std::string text;
    // Small ones are under way before anybody knows that nobody takes them.
    for (int sent = 0; text.empty() && sent < 10000; ++sent) text = failure_of<PeerLost>(*world[0], message_op(OpKind::send, 1, data));
    EXPECT_TRUE(contains(text, "rank 1 has left")) << count << " elements: " << text;
  }
}

// The root of a broadcast only sends.
TEST_P(Leaving, EndsACollectiveThatSendsToIt) {
  auto world = make_world(2, GetParam(), patient());
  std::vector<float> data(1000000, 1.0f);
  world[1].reset();
  Operation op = allreduce_of(data);
  op.kind = OpKind::broadcast;
  op.root = 0;
  std::string text = failure_of<PeerLost>(*world[0], std::move(op));
  EXPECT_TRUE(contains(text, "rank 1 has left")) << text;
}

TEST_P(Leaving, OthersSendEachOtherSharedBuffers) {
  auto world = make_world(3, GetParam(), patient());
  world[2].reset();
  constexpr size_t kCount = 100000;
  auto* shared = static_cast<float*>(Communicator::allocate_shared(kCount * sizeof(float)));
  std::fill_n(shared, kCount, 5.0f);
  std::vector<float> room(kCount);
  on_ranks(2, [&](int rank) {
    Operation op = message_op(rank == 0 ? OpKind::send : OpKind::recv, 1 - rank, room);
    if (rank == 0) op.send_buffer = shared;
    world[rank]->submit(std::move(op)).wait();
  });
  EXPECT_EQ(room, std::vector<float>(kCount, 5.0f));
  Communicator::release_shared(shared);
}

// Threads that submit while another closes: each operation is complete, refused or ended, and nobody waits for ever.
TEST_P(Leaving, WhileOthersSubmit) {
  for (int round = 0; round < 20; ++round) {
    auto world = make_world(2, GetParam(), patient());
    std::atomic<bool> started{false};
    std::thread submitter([&] {
      std::vector<float> data(100);
      try {
        for (;;) {
          started = true;
          world[0]->submit(allreduce_of(data)).wait();
        }
      } catch (const Timeout& error) {
        ADD_FAILURE() << error.what();
      } catch (const Error&) {
      }
    });
    std::vector<float> data(100);
    std::thread peer([&] {
      try {
        for (;;) world[1]->submit(allreduce_of(data)).wait();
      } catch (const Timeout& error) {
        ADD_FAILURE() << error.what();
      } catch (const Error&) {
      }
    });
    while (!started) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::microseconds(100 * round));
    // The other one's handle keeps the object alive.
    EXPECT_NO_THROW(world[0]->finalize());
    submitter.join();
    peer.join();
  }
}

INSTANTIATE_TEST_SUITE_P(Wirings, Leaving,
                         testing::Values(Wiring::threads, Wiring::staged, Wiring::processes, Wiring::two_hosts, Wiring::all_apart),
                         [](const auto& info) { return name_of(info.param); });

}  // namespace
}  // namespace trireme::ccl
