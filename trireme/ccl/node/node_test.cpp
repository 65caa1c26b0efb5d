#include "trireme/ccl/node/node.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "trireme/base/error.h"

namespace trireme::ccl {
namespace {

using std::chrono::milliseconds;

// Two ranks that are threads of this process.
struct TwoRanks {
  Engine engines[2];
  Segment segment = Segment::create(2, 1 << 16, true);
  Node first{engines[0], segment.share(), 0, {0, 1}, PeerMemory(PeerMemory::Access::same_process, 0, {}, {})};
  Node second{engines[1], segment.share(), 1, {0, 1}, PeerMemory(PeerMemory::Access::same_process, 1, {}, {})};
};

PoisonNote a_note() { return {PoisonNote::aborted, 0, "aborted by rank 0"}; }

TEST(Node, WhoFailsWaitsForWritesThatHaveBegun) {
  TwoRanks ranks;
  std::atomic<bool> begun{false}, over{false};
  std::thread writer([&] {
    ranks.second.write_to_peers([&] {
      begun = true;
      std::this_thread::sleep_for(milliseconds(50));
      over = true;
    });
  });
  while (!begun) std::this_thread::yield();
  ranks.first.poison(a_note());
  ranks.first.await_others(milliseconds(20'000), milliseconds(20'000));
  EXPECT_TRUE(over);
  writer.join();
}

TEST(Node, NobodyBeginsToWriteAfterAFailure) {
  TwoRanks ranks;
  ranks.first.poison(a_note());
  EXPECT_THROW(ranks.second.write_to_peers([] { FAIL() << "written"; }), Aborted);
  // The flag is down again: nobody waits for this rank.
  ranks.first.await_others(milliseconds(20'000), milliseconds(20'000));
  EXPECT_EQ(ranks.segment.touching(1).writing.load(), 0u);
}

TEST(Node, WhoFailsWaitsForThreadsThatReadItsMemory) {
  TwoRanks ranks;
  std::atomic<bool> begun{false}, over{false};
  std::thread reader([&] {
    ranks.second.read_from_peers([&] {
      begun = true;
      std::this_thread::sleep_for(milliseconds(50));
      over = true;
    });
  });
  while (!begun) std::this_thread::yield();
  ranks.first.poison(a_note());
  ranks.first.await_others(milliseconds(20'000), milliseconds(20'000));
  EXPECT_TRUE(over);
  reader.join();
  EXPECT_THROW(ranks.second.read_from_peers([] { FAIL() << "read"; }), Aborted);
}

TEST(Node, ARankThatDiedWhileWritingHoldsNobodyUpForLong) {
  TwoRanks ranks;
  ranks.segment.touching(1).writing = 1;
  ranks.first.poison(a_note());
  auto start = std::chrono::steady_clock::now();
  ranks.first.await_others(milliseconds(50), milliseconds(20'000));
  EXPECT_GE(std::chrono::steady_clock::now() - start, milliseconds(50));
}

}  // namespace
}  // namespace trireme::ccl
