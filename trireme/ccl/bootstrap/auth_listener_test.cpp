// A listener in a hostile neighbourhood: thousands of strangers must not keep a job from starting.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <atomic>
#include <thread>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/ccl/bootstrap/control.h"
#include "trireme/ccl/bootstrap/handshake.h"
#include "trireme/ccl/bootstrap/invitation.h"
#include "trireme/ccl/bootstrap/random.h"
#include "trireme/ccl/bootstrap/socket.h"
#include "trireme/ccl/bootstrap/test_strangers.h"

namespace trireme::ccl {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

Deadline in(int ms) { return Deadline::after(milliseconds(ms)); }

class Listener : public ::testing::Test {
 protected:
  UniqueFd connect_stranger() const { return connect_to("127.0.0.1", listener_.port(), in(5000)); }
  UniqueFd connect_rank(uint32_t rank, int timeout_ms) const {
    return connect_proved({"127.0.0.1"}, listener_.port(), secret_, Claim{job_, 4, rank, 0}, in(timeout_ms));
  }

  const JobId job_ = random<JobId>();
  const Secret secret_ = random<Secret>();
  AuthListener listener_{job_, secret_, 4};
};

TEST_F(Listener, LetsInWhoProvesTheSecret) {
  std::thread rank([&] {
    UniqueFd fd = connect_rank(2, 5000);
    send_all(fd.get(), "hello", in(1000));
    EXPECT_EQ(recv_string(fd.get(), 5, in(1000)), "world");
  });
  auto arrival = listener_.accept(in(5000));
  ASSERT_TRUE(arrival.has_value());
  EXPECT_EQ(arrival->second.rank, 2u);
  AuthListener::confirm(arrival->first.get());
  send_all(arrival->first.get(), "world", in(1000));
  EXPECT_EQ(recv_string(arrival->first.get(), 5, in(1000)), "hello");
  rank.join();
}

// Passes on what two ends say; what the second one says after its first `free_bytes` bytes, `delay` later.
void relay(int from, int to, size_t free_bytes, milliseconds delay) {
  const auto pass_on = [](int source, int sink) {
    char bytes[256];
    const size_t count = recv_some(source, bytes, sizeof bytes);
    send_all(sink, {bytes, count}, in(5000));
    return count;
  };
  size_t answered = 0;
  try {
    for (;;) {
      if (wait_ready(from, POLLIN, in(5))) pass_on(from, to);
      if (!wait_ready(to, POLLIN, in(5))) continue;
      if (answered >= free_bytes) std::this_thread::sleep_for(std::exchange(delay, milliseconds(0)));
      answered += pass_on(to, from);
    }
  } catch (const ConnectionLost&) {
  }
}

// On a lossy network the listener's proof may take seconds to arrive, and by then it holds the connection for good.
TEST_F(Listener, ASlowProofIsWaitedFor) {
  UniqueFd door = listen_on("127.0.0.1", 0);
  const uint16_t port = local_port(door.get());
  std::thread between([&] {
    ASSERT_TRUE(wait_ready(door.get(), POLLIN, in(5000)));
    UniqueFd from(::accept4(door.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC)), to = connect_stranger();
    door.reset();  // whoever comes again does not get in
    relay(from.get(), to.get(), kChallengeBytes, milliseconds(4000));
  });
  std::thread rank([&] {
    UniqueFd fd = connect_proved({"127.0.0.1"}, port, secret_, Claim{job_, 4, 2, 0}, in(10000));
    send_all(fd.get(), "hello", in(1000));
  });
  auto arrival = listener_.accept(in(5000));
  ASSERT_TRUE(arrival.has_value());
  AuthListener::confirm(arrival->first.get());
  EXPECT_EQ(recv_string(arrival->first.get(), 5, in(20000)), "hello");
  arrival.reset();
  rank.join();
  between.join();
}

TEST_F(Listener, ReturnsNothingWhenNobodyComes) {
  const auto start = Deadline::Clock::now();
  EXPECT_FALSE(listener_.accept(in(50)).has_value());
  EXPECT_LT(Deadline::Clock::now() - start, std::chrono::seconds(2));
}

TEST_F(Listener, ARefusedClaimantSeesTheReason) {
  std::thread rank([&] {
    try {
      connect_rank(2, 5000);
      ADD_FAILURE();
    } catch (const IoError& error) {
      EXPECT_THAT(error.what(), HasSubstr("rank 2 is taken"));
    }
  });
  auto arrival = listener_.accept(in(5000));
  ASSERT_TRUE(arrival.has_value());
  AuthListener::refuse(std::move(arrival->first), "rank 2 is taken");
  rank.join();
}

TEST_F(Listener, AClaimOfAnotherSizeIsRefusedWithoutReachingTheCaller) {
  std::thread rank([&] {
    EXPECT_THROW(connect_proved({"127.0.0.1"}, listener_.port(), secret_, Claim{job_, 5, 2, 0}, in(5000)), IoError);
  });
  EXPECT_FALSE(listener_.accept(in(300)).has_value());
  rank.join();
}

TEST_F(Listener, ASlowStrangerIsDroppedAfterItsOwnDeadline) {
  UniqueFd slow = connect_stranger();
  send_all(slow.get(), "TR", in(1000));
  EXPECT_FALSE(listener_.accept(in(2300)).has_value());
  char byte;
  EXPECT_THROW(recv_all(slow.get(), &byte, 1, in(1000)), ConnectionLost);
}

TEST_F(Listener, TheOldestStrangersMakeRoomForAnHonestRank) {
  std::vector<UniqueFd> strangers;
  for (int i = 0; i < 300; ++i) strangers.push_back(connect_stranger());
  std::thread rank([&] { connect_rank(1, 5000); });
  auto arrival = listener_.accept(in(1500));  // before any stranger's deadline
  ASSERT_TRUE(arrival.has_value());
  AuthListener::confirm(arrival->first.get());
  rank.join();
  EXPECT_TRUE(is_lost(strangers.front().get()));
  EXPECT_FALSE(is_lost(strangers.back().get()));
}

TEST_F(Listener, SurvivesRunningOutOfDescriptors) {
  std::vector<UniqueFd> strangers;
  for (int i = 0; i < 40; ++i) strangers.push_back(connect_stranger());
  UniqueFd honest = connect_stranger();
  ClientHandshake handshake(secret_, Claim{job_, 4, 1, 0}, random<Nonce>());
  send_all(honest.get(), handshake.hello(), in(1000));

  // Room for ten more descriptors.
  rlimit before;
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit tight = before;
  tight.rlim_cur = static_cast<rlim_t>(honest.get()) + 11;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &tight), 0);
  std::thread rank(
      [&] { send_all(honest.get(), handshake.answer(recv_string(honest.get(), kChallengeBytes, in(5000))), in(1000)); });
  auto arrival = listener_.accept(in(5000));
  rank.join();
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  ASSERT_TRUE(arrival.has_value());
  EXPECT_EQ(arrival->second.rank, 1u);
}

// 10,000 strangers and a second claimant of rank 1 while four ranks join, the last of them when the flood is well under way.
TEST(HostileNeighbourhood, TheJobStartsAllTheSame) {
  constexpr int kRanks = 4, kStrangers = 10000;
  auto invitation = Control::invite(kRanks);
  const std::string text = Control::text_of(*invitation);
  const Whereabouts at = invitation->whereabouts;
  const auto start = Deadline::Clock::now();

  std::atomic<int> came{0}, impostor_refused{0};
  std::vector<std::thread> threads;
  threads.emplace_back([&] {
    Strangers strangers(at.port, Claim{at.job, at.size, 1, 0});
    for (; came < kStrangers; ++came) strangers.connect(came);
  });
  auto take_part = [](std::unique_ptr<Control> control) {
    EXPECT_EQ(control->allgather(std::to_string(control->rank()), in(15000)),
              (std::vector<std::string>{"0", "1", "2", "3"}));
  };
  threads.emplace_back([&] { take_part(Control::serve(invitation, in(20000))); });
  for (int rank = 1; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      while (rank == kRanks - 1 && came < kStrangers - 1000) std::this_thread::sleep_for(milliseconds(5));
      take_part(Control::join(kRanks, rank, text, in(20000)));
    });
  }
  threads.emplace_back([&] {
    while (came < kStrangers / 2) std::this_thread::sleep_for(milliseconds(5));
    try {
      connect_proved({"127.0.0.1"}, at.port, at.secret, Claim{at.job, kRanks, 1, 0}, in(10000));
    } catch (const IoError& error) {
      EXPECT_THAT(error.what(), HasSubstr("rank 1 has joined already"));
      ++impostor_refused;
    }
  });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(came, kStrangers);
  EXPECT_EQ(impostor_refused, 1);
  EXPECT_LT(Deadline::Clock::now() - start, std::chrono::seconds(20));
}

}  // namespace
}  // namespace trireme::ccl
