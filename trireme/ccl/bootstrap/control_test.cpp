// The star with threads as ranks: meeting, exchanging, and the errors that name who is missing.
#include "trireme/ccl/bootstrap/control.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <functional>
#include <thread>

#include "trireme/base/error.h"
#include "trireme/ccl/bootstrap/invitation.h"
#include "trireme/ccl/bootstrap/random.h"
#include "trireme/ccl/bootstrap/socket.h"

namespace trireme::ccl {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::HasSubstr;

Deadline in(int ms) { return Deadline::after(milliseconds(ms)); }

// Runs `body(rank)` on a thread for each rank and returns what each threw, "" for nothing.
std::vector<std::string> run_ranks(int size, const std::function<void(int)>& body, int first = 0) {
  std::vector<std::string> errors(static_cast<size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = first; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        body(rank);
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

class ControlOfSize : public ::testing::TestWithParam<int> {};

TEST_P(ControlOfSize, EveryRankGetsEveryContributionInRankOrder) {
  const int size = GetParam();
  auto store = make_memory_store();
  expect_no_errors(run_ranks(size, [&](int rank) {
    auto control = Control::meet(size, rank, *store, "key", in(10000));
    EXPECT_EQ(control->rank(), rank);
    EXPECT_EQ(control->size(), size);
    EXPECT_FALSE(control->my_address().empty());
    for (size_t bytes : {size_t{0}, size_t{1}, size_t{1000}, size_t{65536}}) {
      auto all = control->allgather(std::string(bytes, static_cast<char>('a' + rank)), in(10000));
      ASSERT_EQ(all.size(), static_cast<size_t>(size));
      for (int peer = 0; peer < size; ++peer)
        EXPECT_EQ(all[static_cast<size_t>(peer)], std::string(bytes, static_cast<char>('a' + peer)));
    }
  }));
}

INSTANTIATE_TEST_SUITE_P(Sizes, ControlOfSize, ::testing::Values(1, 2, 3, 7));

TEST(Control, ConnectionsFormAStar) {
  auto store = make_memory_store();
  expect_no_errors(run_ranks(3, [&](int rank) {
    auto control = Control::meet(3, rank, *store, "key", in(10000));
    for (int peer = 0; peer < 3; ++peer)
      EXPECT_EQ(control->connection_to(peer) >= 0, peer != rank && (peer == 0 || rank == 0));
    EXPECT_EQ(control->connection_to(3), -1);
    control->allgather("", in(10000));
  }));
}

TEST(Control, EveryRankHasTheSameJobAndSecret) {
  auto store = make_memory_store();
  std::array<JobId, 2> jobs;
  std::array<Secret, 2> secrets;
  expect_no_errors(run_ranks(2, [&](int rank) {
    auto control = Control::meet(2, rank, *store, "key", in(10000));
    jobs[static_cast<size_t>(rank)] = control->job();
    secrets[static_cast<size_t>(rank)] = control->secret();
  }));
  EXPECT_EQ(jobs[0], jobs[1]);
  EXPECT_EQ(secrets[0], secrets[1]);
}

TEST(Control, InvitationPassedByOtherMeans) {
  auto invitation = Control::invite(2);
  const std::string text = Control::text_of(*invitation);
  EXPECT_LE(text.size(), 512u);
  expect_no_errors(run_ranks(2, [&](int rank) {
    auto control = rank == 0 ? Control::serve(invitation, in(10000)) : Control::join(2, rank, text, in(10000));
    EXPECT_EQ(control->allgather(rank == 0 ? "zero" : "one", in(10000)), (std::vector<std::string>{"zero", "one"}));
  }));
}

TEST(Control, TooMuchIsTheCallersErrorAndLeavesItUsable) {
  auto store = make_memory_store();
  auto control = Control::meet(1, 0, *store, "key", in(1000));
  EXPECT_THROW(control->allgather(std::string(65537, 'x'), in(1000)), InvalidArgument);
  EXPECT_EQ(control->allgather("x", in(1000)), std::vector<std::string>{"x"});
}

TEST(Control, WrongRanksAreRefused) {
  auto store = make_memory_store();
  EXPECT_THROW(Control::meet(2, 2, *store, "key", in(10)), InvalidArgument);
  EXPECT_THROW(Control::meet(0, 0, *store, "key", in(10)), InvalidArgument);
  EXPECT_THROW(Control::join(2, 0, "", in(10)), InvalidArgument);
}

TEST(Control, AWrongInvitationIsTheCallersError) {
  EXPECT_THROW(Control::join(2, 1, "not an invitation", in(10)), InvalidArgument);
  EXPECT_THROW(Control::join(2, 1, Control::text_of(*Control::invite(3)), in(10)), InvalidArgument);
}

TEST(Control, MissingRanksAreNamedOnEveryRankThatCame) {
  auto store = make_memory_store();
  auto errors = run_ranks(2, [&](int rank) { Control::meet(4, rank, *store, "key", in(rank == 0 ? 2000 : 20000)); });
  double waited_s = 0;
  EXPECT_EQ(std::sscanf(errors[0].c_str(), "rank 0: waited %lf", &waited_s), 1) << errors[0];
  EXPECT_GE(waited_s, 1.9);
  EXPECT_LT(waited_s, 10);
  EXPECT_THAT(errors[0],
              AllOf(HasSubstr(" s for 3 ranks to join; ranks 2, 3 did not come"), HasSubstr("TRIREME_IFACE")));
  EXPECT_THAT(errors[1], AllOf(HasSubstr("rank 1: "), HasSubstr("ranks 2, 3 did not come")));
}

TEST(Control, WithoutRankZeroTheOthersSaySo) {
  auto store = make_memory_store();
  try {
    Control::meet(2, 1, *store, "key", in(100));
    FAIL();
  } catch (const Timeout& timeout) {
    EXPECT_THAT(timeout.what(), AllOf(HasSubstr("rank 1: no word from rank 0"), HasSubstr("it has left no invitation")));
  }
}

TEST(Control, ARankThatDoesNotContributeIsNamedOnEveryOtherRank) {
  auto store = make_memory_store();
  std::atomic<int> told{0};
  auto errors = run_ranks(4, [&](int rank) {
    auto control = Control::meet(4, rank, *store, "key", in(10000));
    if (rank == 1 || rank == 2) {
      while (told < 2) std::this_thread::sleep_for(milliseconds(5));
      return;
    }
    try {
      control->allgather("", in(rank == 0 ? 2000 : 20000));
    } catch (const Error&) {
      ++told;
      throw;
    }
  });
  EXPECT_THAT(errors[0], HasSubstr("rank 0: bootstrap allgather #1: no word from ranks 1, 2"));
  EXPECT_THAT(errors[3], AllOf(HasSubstr("rank 3: bootstrap allgather #1"), HasSubstr("no word from ranks 1, 2")));
}

TEST(Control, ALostRankIsNamedOnEveryOtherRank) {
  auto store = make_memory_store();
  std::array<int, 3> lost = {-1, -1, -1};
  run_ranks(3, [&](int rank) {
    auto control = Control::meet(3, rank, *store, "key", in(10000));
    if (rank == 1) return;
    try {
      control->allgather("", in(10000));
    } catch (const PeerLost& error) {
      lost[static_cast<size_t>(rank)] = error.rank();
    }
  });
  EXPECT_EQ(lost, (std::array<int, 3>{1, -1, 1}));
}

// What an earlier incarnation may have left under the key, with the value that leads nowhere.
class StaleKey : public ::testing::Test {
 protected:
  using Duration = Deadline::Clock::duration;

  // `meeting` makes what is stale, and returns how long the meeting took. The best of three: others use the machine.
  static void expect_soon(const std::function<Duration()>& meeting) {
    constexpr Duration kSoon = std::chrono::seconds(6);
    Duration took = Duration::max();
    for (int attempt = 0; attempt < 3 && took >= kSoon; ++attempt) took = std::min(took, meeting());
    EXPECT_LT(took, kSoon);
  }

  // Rank 1 finds the stale value first; rank 0 comes half a second later.
  static Duration meeting_after(const std::string& stale) {
    auto store = make_memory_store();
    store->set("key", stale);
    const auto start = Deadline::Clock::now();
    expect_no_errors(run_ranks(2, [&](int rank) {
      if (rank == 0) std::this_thread::sleep_for(milliseconds(500));
      auto control = Control::meet(2, rank, *store, "key", in(15000));
      EXPECT_EQ(control->allgather(std::string(1, static_cast<char>('0' + rank)), in(10000)),
                (std::vector<std::string>{"0", "1"}));
    }));
    return Deadline::Clock::now() - start;
  }

  static Whereabouts stale_at(uint16_t port, uint32_t size = 2) {
    return {random<JobId>(), random<Secret>(), size, port, {"127.0.0.1"}};
  }
};

TEST_F(StaleKey, Garbage) {
  expect_soon([] { return meeting_after("not an invitation"); });
}

TEST_F(StaleKey, DeadPort) {
  expect_soon([] {
    UniqueFd closed = listen_on("127.0.0.1", 0);
    const uint16_t port = local_port(closed.get());
    closed.reset();
    return meeting_after(encode_invitation(stale_at(port)));
  });
}

TEST_F(StaleKey, AnotherWorldSize) {
  expect_soon([] { return meeting_after(Control::text_of(*Control::invite(3))); });
}

TEST_F(StaleKey, AStrangersListenerThatSaysNothing) {
  expect_soon([] {
    UniqueFd stranger = listen_on("127.0.0.1", 0);
    return meeting_after(encode_invitation(stale_at(local_port(stranger.get()))));
  });
}

TEST_F(StaleKey, AnotherJobOfOursListensThereNow) {
  expect_soon([] {
    auto other = Control::invite(2);
    std::thread host([&] { EXPECT_THROW(Control::serve(other, in(1500)), Timeout); });
    const Duration took = meeting_after(encode_invitation(stale_at(other->whereabouts.port)));
    host.join();
    return took;
  });
}

TEST_F(StaleKey, AnOldRankZeroThatStillWaitsForOthers) {
  expect_soon([] {
    auto old = Control::invite(2);
    std::atomic<bool> over{false};
    // It lets rank 1 in, but the meeting is never complete: the listener confirms and says no more.
    std::thread host([&] {
      auto arrival = old->listener->accept(in(3000));
      ASSERT_TRUE(arrival.has_value());
      AuthListener::confirm(arrival->first.get());
      while (!over) std::this_thread::sleep_for(milliseconds(5));
    });
    const Duration took = meeting_after(Control::text_of(*old));
    over = true;
    host.join();
    return took;
  });
}

TEST(Control, ASecondClaimantIsRefusedAndHarmsNobody) {
  auto store = make_memory_store();
  std::string second_error;
  expect_no_errors(run_ranks(3, [&](int rank) {
    if (rank == 2) {
      // Rank 1 has joined by now; somebody else claims to be it.
      std::this_thread::sleep_for(milliseconds(1500));
      try {
        Control::meet(3, 1, *store, "key", in(2000));
      } catch (const Timeout& timeout) {
        second_error = timeout.what();
      }
    }
    auto control = Control::meet(3, rank, *store, "key", in(10000));
    control->allgather("", in(10000));
  }));
  EXPECT_THAT(second_error, HasSubstr("rank 1 has joined already"));
}

TEST(Control, ARankThatWentAndCameBackGetsItsPlace) {
  auto invitation = Control::invite(3);
  const std::string text = Control::text_of(*invitation);
  const Whereabouts at = invitation->whereabouts;
  std::thread host([&] { EXPECT_EQ(Control::serve(invitation, in(10000))->allgather("", in(10000)).size(), 3u); });
  for (int i = 0; i < 3; ++i) {  // comes and closes
    EXPECT_NO_THROW(connect_proved({"127.0.0.1"}, at.port, at.secret, Claim{at.job, 3, 1, 0}, in(5000)));
  }
  expect_no_errors(run_ranks(
      3, [&](int rank) { Control::join(3, rank, text, in(10000))->allgather("", in(10000)); }, 1));
  host.join();
}

TEST(Control, AForkedChildDoesNotHoldTheConnections) {
  auto store = make_memory_store();
  expect_no_errors(run_ranks(2, [&](int rank) {
    auto control = Control::meet(2, rank, *store, "key", in(10000));
    control->allgather("", in(10000));
    if (rank == 1) {
      const int connection = control->connection_to(0);
      pid_t child = ::fork();
      // Exits at once unless the descriptor is still open: then it would keep the connection.
      if (child == 0) ::_exit(::fcntl(connection, F_GETFD) == -1 && control->connection_to(0) == -1 ? 0 : 1);
      int status = -1;
      ::waitpid(child, &status, 0);
      EXPECT_EQ(status, 0);
    }
    control->allgather("", in(10000));
  }));
}

}  // namespace
}  // namespace trireme::ccl
