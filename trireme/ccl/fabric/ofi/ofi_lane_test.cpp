// Threads as ranks, each with a lane of its own, over every provider that this machine's libfabric has.
#include "trireme/ccl/fabric/ofi/ofi_lane.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <deque>
#include <functional>
#include <thread>

#include "trireme/base/error.h"

namespace trireme::ccl {
namespace {

using detail::OfiOptions;
using ::testing::AllOf;
using ::testing::HasSubstr;

Deadline in(int ms) { return Deadline::after(std::chrono::milliseconds(ms)); }

// One rank of a test.
struct Rank {
  int rank = 0;
  int size = 0;
  Control& control;
  std::unique_ptr<BulkLane> lane;

  void barrier() { control.allgather("", in(10000)); }
};

// Runs `body` on a thread per rank, all on hosts of their own, and returns what each threw, "" for nothing.
std::vector<std::string> run_ranks(int size, const std::function<OfiOptions(int)>& options_of, const std::function<void(Rank&)>& body) {
  auto store = make_memory_store();
  std::vector<std::string> errors(static_cast<size_t>(size));
  std::vector<int> hosts;
  for (int rank = 0; rank < size; ++rank) hosts.push_back(rank);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        auto control = Control::meet(size, rank, *store, "key", in(10000));
        Rank self{rank, size, *control, detail::connect_ofi_lane(*control, hosts, in(10000), options_of(rank))};
        body(self);
      } catch (const Error& error) {
        errors[static_cast<size_t>(rank)] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

void expect_no_errors(const std::vector<std::string>& errors) {
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

// Different in every message and at every place of it.
std::byte expected_byte(int from, int to, size_t message, size_t i) {
  return static_cast<std::byte>((i * 131 + (i >> 8) * 17 + (i >> 16) * 7 + message * 29 + static_cast<size_t>(from) * 3 + static_cast<size_t>(to)) & 255);
}

struct Message {
  std::vector<std::byte> data;
  Transfer transfer;

  explicit Message(size_t bytes) : data(bytes) {
    transfer.data = data.data();
    transfer.bytes = bytes;
  }
};

// Every rank sends a message of each size to every other, all at once. Goes on polling until every rank has everything: a real rank is told by
// the link when its peer needs it no longer.
void exchange_all(Rank& self, const std::vector<size_t>& sizes, std::atomic<int>& finished) {
  std::deque<Message> receives, sends;
  for (int peer = 0; peer < self.size; ++peer) {
    if (peer == self.rank) continue;
    for (size_t i = 0; i < sizes.size(); ++i) self.lane->receive(peer, 100 + i, receives.emplace_back(sizes[i]).transfer);
  }
  self.barrier();
  for (int peer = 0; peer < self.size; ++peer) {
    if (peer == self.rank) continue;
    for (size_t i = 0; i < sizes.size(); ++i) {
      Message& message = sends.emplace_back(sizes[i]);
      for (size_t k = 0; k < sizes[i]; ++k) message.data[k] = expected_byte(self.rank, peer, i, k);
      self.lane->send(peer, 100 + i, message.transfer);
    }
  }
  Deadline deadline = in(60000);
  bool counted = false;
  while (finished.load() < self.size) {
    ASSERT_FALSE(deadline.passed()) << "rank " << self.rank << " of " << self.size;
    if (!self.lane->progress()) std::this_thread::yield();
    auto done = [](const Message& message) { return message.transfer.done; };
    if (counted || !std::all_of(receives.begin(), receives.end(), done) || !std::all_of(sends.begin(), sends.end(), done)) continue;
    counted = true;
    finished.fetch_add(1);
  }
  EXPECT_FALSE(self.lane->active());
  auto receive = receives.begin();
  for (int peer = 0; peer < self.size; ++peer) {
    if (peer == self.rank) continue;
    for (size_t i = 0; i < sizes.size(); ++i, ++receive) {
      size_t wrong = 0;
      for (size_t k = 0; k < sizes[i]; ++k) wrong += receive->data[k] != expected_byte(peer, self.rank, i, k);
      EXPECT_EQ(wrong, 0u) << "rank " << self.rank << ", message " << i << " of " << sizes[i] << " bytes from rank " << peer;
    }
  }
}

class OfiLaneOf : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    auto errors = run_ranks(2, [](int) { return options(); }, [](Rank& self) { self.barrier(); });
    if (!errors[0].empty()) GTEST_SKIP() << errors[0];
  }
  // shm maps its peers' memory, and crashes when a peer has taken it away. Another reason why it is never chosen between hosts.
  static bool survives_its_peers() { return GetParam() != std::string("shm"); }
  static OfiOptions options() { return OfiOptions{.provider = GetParam()}; }
  static void exchange_with(int size, const OfiOptions& options, const std::vector<size_t>& sizes) {
    std::atomic<int> finished{0};
    expect_no_errors(run_ranks(size, [&](int) { return options; }, [&](Rank& self) { exchange_all(self, sizes, finished); }));
  }
};

TEST_P(OfiLaneOf, MovesMessagesOfEverySizeBothWaysAtOnce) {
  exchange_with(2, options(), {1, 7, 4095, 4096, 16384, 65537, 1 << 20, (8 << 20) + 3, 32 << 20});
}

TEST_P(OfiLaneOf, MovesEachSizeAlone) {
  for (size_t bytes : {size_t{1}, size_t{65537}, size_t{1} << 20, size_t{32} << 20}) exchange_with(2, options(), {bytes});
}

TEST_P(OfiLaneOf, TellsSendersApartWhoseMessagesHaveTheSameId) { exchange_with(4, options(), {100'000, 1, 300'000, 70'000}); }

TEST_P(OfiLaneOf, SplitsMessagesThatAreLongerThanTheProviderTakes) {
  OfiOptions split = options();
  split.max_message_bytes = 10'000;
  exchange_with(2, split, {9'999, 10'000, 10'001, 1'000'000});
}

TEST_P(OfiLaneOf, QueuesWhatTheProviderHasNoRoomFor) { exchange_with(2, options(), std::vector<size_t>(3000, 20'000)); }

TEST_P(OfiLaneOf, RegistersMemoryWhereItMust) {
  OfiOptions registering = options();
  registering.register_memory = true;
  registering.max_message_bytes = 1 << 20;
  exchange_with(3, registering, {1, 100'000, (4 << 20) + 1});
}

TEST_P(OfiLaneOf, GivesUpPendingReceivesWhenItEnds) {
  expect_no_errors(run_ranks(2, [](int) { return options(); }, [](Rank& self) {
    Message never(100'000);
    self.lane->receive(1 - self.rank, 1, never.transfer);
    self.barrier();
    auto start = std::chrono::steady_clock::now();
    self.lane->progress();
    EXPECT_TRUE(self.lane->active());
    if (self.rank == 0) self.lane->stop();
    self.lane.reset();
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
    EXPECT_FALSE(never.transfer.done);
  }));
}

TEST_P(OfiLaneOf, TouchesNothingAfterAStop) {
  if (!survives_its_peers()) GTEST_SKIP() << GetParam() << " cannot do without its peers";
  expect_no_errors(run_ranks(2, [](int) { return options(); }, [](Rank& self) {
    {
      Message message(32 << 20);
      if (self.rank == 0) self.lane->receive(1, 1, message.transfer);
      self.barrier();
      if (self.rank == 1) self.lane->send(0, 1, message.transfer);
      for (int round = 0; round < 20; ++round) self.lane->progress();
      self.lane->stop();
    }
    EXPECT_FALSE(self.lane->active());
    EXPECT_FALSE(self.lane->progress());
    EXPECT_TRUE(self.lane->may_sleep());
    Message late(1000);
    self.lane->send(1 - self.rank, 2, late.transfer);
    self.lane->receive(1 - self.rank, 3, late.transfer);
    self.barrier();
  }));
}

// The links decide who is alive; a lane may learn it or not, but it never blocks, and what it says names the peer.
TEST_P(OfiLaneOf, SurvivesAPeerThatGoesAway) {
  if (!survives_its_peers()) GTEST_SKIP() << GetParam() << " cannot do without its peers";
  expect_no_errors(run_ranks(2, [](int) { return options(); }, [](Rank& self) {
    Message from(32 << 20), to(32 << 20);
    self.lane->receive(1 - self.rank, 1, from.transfer);
    self.barrier();
    if (self.rank == 1) {
      self.lane->send(0, 1, to.transfer);
      for (int round = 0; round < 5; ++round) self.lane->progress();
      self.lane.reset();
      return self.barrier();
    }
    try {
      self.lane->send(1, 1, to.transfer);
      Deadline deadline = in(500);
      while (!deadline.passed()) self.lane->progress();
    } catch (const PeerLost& error) {
      EXPECT_EQ(error.rank(), 1);
      EXPECT_THAT(error.what(), AllOf(HasSubstr("rank 0: "), HasSubstr("rank 1: libfabric, provider ")));
    } catch (const IoError& error) {
      EXPECT_THAT(error.what(), AllOf(HasSubstr("rank 0: "), HasSubstr("rank 1: libfabric, provider ")));
    }
    self.lane->stop();
    self.barrier();
  }));
}

TEST_P(OfiLaneOf, WakesASleeper) {
  std::atomic<bool> received{false};
  std::atomic<int> sleeps{0};
  bool has_descriptor = false;
  expect_no_errors(run_ranks(2, [](int) { return options(); }, [&](Rank& self) {
    Message message(4 << 20);
    if (self.rank == 0) self.lane->receive(1, 1, message.transfer);
    self.barrier();
    if (self.rank == 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      self.lane->send(0, 1, message.transfer);
      while (!received || !message.transfer.done) self.lane->progress();
      return;
    }
    auto start = std::chrono::steady_clock::now();
    while (!message.transfer.done) {
      if (self.lane->progress()) continue;
      if (!self.lane->may_sleep()) continue;
      std::vector<pollfd> fds;
      self.lane->add_poll_fds(fds);
      has_descriptor = !fds.empty();
      ++sleeps;
      ::poll(fds.data(), fds.size(), 5000);
    }
    // A wake-up that is missed costs five seconds.
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(4));
    received = true;
    for (Deadline deadline = in(100); !deadline.passed();) self.lane->progress();
  }));
  if (sleeps == 0) GTEST_SKIP() << GetParam() << " has no descriptor to sleep on";
  EXPECT_TRUE(has_descriptor);
}

INSTANTIATE_TEST_SUITE_P(Providers, OfiLaneOf, ::testing::Values("net", "tcp;ofi_rxm", "shm"), [](const auto& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), ';', '_');
  return name;
});

TEST(OfiLane, ChoosesAProviderByItself) {
  auto errors = run_ranks(2, [](int) { return OfiOptions(); }, [](Rank& self) { self.barrier(); });
  if (!errors[0].empty()) GTEST_SKIP() << errors[0];
  std::atomic<int> finished{0};
  expect_no_errors(run_ranks(2, [](int) { return OfiOptions(); }, [&](Rank& self) { exchange_all(self, {1 << 20}, finished); }));
}

TEST(OfiLane, LeavesTheProgramsSignalHandlersAlone) {
  // In a process of its own: the first one to load libfabric here has done so already.
  auto load_and_look = [] {
    for (int number : {SIGINT, SIGTERM}) signal(number, SIG_IGN);
    run_ranks(2, [](int) { return OfiOptions(); }, [](Rank&) {});
    std::exit(signal(SIGINT, SIG_DFL) == SIG_IGN && signal(SIGTERM, SIG_DFL) == SIG_IGN ? 0 : 1);
  };
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(load_and_look(), ::testing::ExitedWithCode(0), "");
}

TEST(OfiLane, SaysOnEveryRankWhichOneHasNoLibfabric) {
  auto errors = run_ranks(3, [](int rank) { return OfiOptions{.library = rank == 1 ? "libno_such_fabric.so.1" : "libfabric.so.1"}; }, [](Rank&) {});
  for (const std::string& error : errors) {
    EXPECT_THAT(error, AllOf(HasSubstr("TRIREME_FABRIC=ofi: rank 1: libfabric could not be loaded"), HasSubstr("libno_such_fabric.so.1"),
                             HasSubstr("or use TRIREME_FABRIC=tcp")));
  }
}

TEST(OfiLane, SaysThatALibraryIsNotLibfabric) {
  auto errors = run_ranks(2, [](int) { return OfiOptions{.library = "libm.so.6"}; }, [](Rank&) {});
  EXPECT_THAT(errors[0], HasSubstr("libm.so.6 has no fi_getinfo: it is not libfabric"));
}

TEST(OfiLane, SaysThatAProviderIsNotThere) {
  auto errors = run_ranks(2, [](int) { return OfiOptions{.provider = "carrier_pigeon"}; }, [](Rank&) {});
  for (const std::string& error : errors) EXPECT_THAT(error, AllOf(HasSubstr("rank 0: libfabric "), HasSubstr("named carrier_pigeon")));
}

TEST(OfiLane, SaysThatTheRanksHaveNoProviderInCommon) {
  auto errors = run_ranks(2, [](int rank) { return OfiOptions{.provider = rank == 0 ? "net" : "tcp;ofi_rxm"}; }, [](Rank&) {});
  if (errors[0].find("offers no provider") != std::string::npos) GTEST_SKIP() << errors[0];
  for (const std::string& error : errors) EXPECT_THAT(error, HasSubstr("no libfabric provider in common (rank 0: net; rank 1: tcp;ofi_rxm)"));
}

}  // namespace
}  // namespace trireme::ccl
