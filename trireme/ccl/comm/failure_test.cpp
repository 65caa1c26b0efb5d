// What happens when something goes wrong: mismatches, deadlines, abort, a rank that leaves, bad arguments. Killed processes and cut
// networks are tested in tests/multiprocess and tests/cluster.
#include <dirent.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <mutex>
#include <stdexcept>

#include "trireme/base/error.h"
#include "trireme/ccl/comm/test_operations.h"
#include "trireme/ccl/comm/test_world.h"

namespace trireme::ccl {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

class Failures : public testing::TestWithParam<Wiring> {};

Operation barrier_op() { return Operation{}; }

// Rank 1 calls something else; everybody learns that ranks disagree, and nobody hangs or crashes.
void expect_mismatch(int ranks, Wiring wiring, const std::function<Operation(int rank, std::vector<float>&)>& make, const std::string& mention) {
  CommunicatorOptions options;
  options.timeout = milliseconds(20000);
  std::atomic<int> told{0};
  on_world(
      ranks, wiring,
      [&](Communicator& comm) {
        std::vector<float> data(60000, 1.0f);
        // A rank may be done before the others disagree; then its next operation tells.
        Operation op = make(comm.rank(), data);
        SCOPED_TRACE(str("rank ", comm.rank(), ": ", describe(op)));
        std::string text = failure_of<Mismatch>(comm, op);
        if (text.empty()) text = failure_of<Mismatch>(comm, barrier_op());
        EXPECT_TRUE(contains(text, "called") || contains(text, "bytes")) << text;
        EXPECT_TRUE(contains(text, "rank 1")) << text;
        EXPECT_TRUE(contains(text, mention)) << text;
        ++told;
        // And it stays dead.
        EXPECT_THROW(comm.submit(barrier_op()).wait(), Mismatch);
      },
      options);
  EXPECT_EQ(told, ranks);
}

TEST_P(Failures, AnotherOperation) {
  expect_mismatch(3, GetParam(), [](int rank, std::vector<float>& data) {
    Operation op = allreduce_of(data);
    if (rank == 1) op.kind = OpKind::broadcast, op.root = 0;
    return op;
  }, "broadcast");
}

TEST_P(Failures, AnotherCount) {
  for (size_t count : {size_t{100}, size_t{50000}}) {
    expect_mismatch(3, GetParam(), [count](int rank, std::vector<float>& data) {
      Operation op = allreduce_of(data);
      op.count = rank == 1 ? count - 1 : count;
      return op;
    }, std::to_string(count - 1));
  }
}

TEST_P(Failures, AnotherType) {
  expect_mismatch(3, GetParam(), [](int rank, std::vector<float>& data) {
    Operation op = allreduce_of(data);
    if (rank == 1) op.type = DataType::int32;
    return op;
  }, "int32");
}

TEST_P(Failures, AnotherRoot) {
  expect_mismatch(3, GetParam(), [](int rank, std::vector<float>& data) {
    Operation op = allreduce_of(data);
    op.kind = OpKind::broadcast;
    op.root = rank == 1 ? 1 : 2;
    return op;
  }, "root 1");
}

// Two ranks that both take themselves for the root, or both the other: then neither sends, or both, what the other expects.
TEST_P(Failures, EachAnotherRoot) {
  for (OpKind kind : {OpKind::broadcast, OpKind::reduce, OpKind::gather, OpKind::scatter}) {
    for (size_t count : {size_t{10}, size_t{25000}}) {
      for (bool oneself : {true, false}) {
        SCOPED_TRACE(std::string(name_of(kind)) + " of " + std::to_string(count) + (oneself ? ", two roots" : ", no root"));
        expect_mismatch(2, GetParam(), [=](int rank, std::vector<float>& data) {
          Operation op = allreduce_of(data);
          op.kind = kind;
          op.count = count;
          op.root = oneself ? rank : 1 - rank;
          std::vector<Block> blocks{{data.data(), count * 4}, {data.data() + count, count * 4}};
          if (kind == OpKind::gather && op.root == rank) op.recv_blocks = blocks;
          if (kind == OpKind::scatter && op.root == rank) op.send_blocks = blocks;
          return op;
        }, "root");
      }
    }
  }
}

// Who tests without a pause never sleeps, which is when ranks ask each other.
TEST_P(Failures, EachAnotherRootWhileTheyOnlyTest) {
  CommunicatorOptions options;
  options.timeout = milliseconds(20000);
  std::atomic<int> told{0};
  on_world(
      2, GetParam(),
      [&](Communicator& comm) {
        std::vector<float> data(20);
        Operation op = allreduce_of(data);
        op.kind = OpKind::scatter;
        op.count = 10;
        op.root = 1 - comm.rank();
        op.caller_waits = true;
        const auto start = std::chrono::steady_clock::now();
        Request request = comm.submit(op);
        EXPECT_THROW(while (!request.test()) {}, Mismatch);
        EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
        ++told;
      },
      options);
  EXPECT_EQ(told, 2);
}

TEST_P(Failures, AlltoallCountsThatDisagree) {
  for (size_t count : {size_t{10}, size_t{10000}}) {
    expect_mismatch(3, GetParam(), [count](int rank, std::vector<float>& data) {
      Operation op = allreduce_of(data);
      op.kind = OpKind::alltoall;
      for (size_t peer = 0; peer < 3; ++peer) {
        op.send_blocks.push_back({data.data() + peer * count, count * 4});
        op.recv_blocks.push_back({data.data() + 30000 + peer * count, count * 4});
      }
      if (rank == 1) op.send_blocks[2].bytes -= 4, op.send_blocks[0].bytes -= 4;
      return op;
    }, "bytes");
  }
}

TEST_P(Failures, ADeadlineNamesWhoDidNotCome) {
  std::atomic<int> late{0};
  std::once_flag begun;
  Clock::time_point first;
  on_world(3, GetParam(), [&](Communicator& comm) {
    std::vector<float> data(10, 1.0f);
    Operation op = allreduce_of(data);
    op.timeout = milliseconds(1000);
    if (comm.rank() == 2) {
      // Comes only when the others have given up.
      while (late < 2) std::this_thread::sleep_for(milliseconds(5));
      // What the others had already sent may be all that this needs; the next operation cannot succeed.
      std::string text = failure_of<Timeout>(comm, op);
      if (text.empty()) text = failure_of<Timeout>(comm, barrier_op());
      EXPECT_FALSE(text.empty());
      return;
    }
    // The first whose time is up tells the other, who may have begun later.
    std::call_once(begun, [&] { first = Clock::now(); });
    auto start = Clock::now();
    std::string text = failure_of<Timeout>(comm, op);
    auto end = Clock::now();
    EXPECT_GE(end - first, milliseconds(950));
    EXPECT_LT(end - start, milliseconds(10000));
    EXPECT_TRUE(contains(text, "rank 2") || contains(text, "have not called it: 2")) << text;
    ++late;
  });
}

// Each of four hosts has one rank, and two of them do not come.
TEST(Deadlines, NameEveryRankThatDidNotCome) {
  for (size_t count : {size_t{10}, size_t{300000}}) {
    auto world = make_world(4, Wiring::all_apart);
    on_ranks(2, [&](int rank) {
      std::vector<float> data(count, 1.0f);
      Operation op = allreduce_of(data);
      op.timeout = milliseconds(2000);
      std::string text = failure_of<Timeout>(*world[rank], op);
      EXPECT_TRUE(contains(text, "waiting for rank 2, rank 3, of which nothing has come yet")) << text;
    });
  }
}

// The first was given a minute, the one behind it a moment.
TEST_P(Failures, ADeadlineCountsWhileAnotherOperationHasItsTurn) {
  std::atomic<int> ended{0};
  on_world(3, GetParam(), [&](Communicator& comm) {
    if (comm.rank() == 2) {
      while (ended < 2) std::this_thread::sleep_for(milliseconds(5));
      return;
    }
    std::vector<float> data(60000, 1.0f);
    Operation patient = allreduce_of(data), hurried = barrier_op();
    patient.timeout = milliseconds(60000);
    hurried.timeout = milliseconds(1000);
    auto start = Clock::now();
    Request first = comm.submit(std::move(patient));
    std::string text = failure_of<Timeout>(comm, std::move(hurried));
    EXPECT_LT(Clock::now() - start, milliseconds(10000));
    EXPECT_TRUE(contains(text, "barrier") && contains(text, "its turn comes after allreduce")) << text;
    EXPECT_THROW(first.wait(), Timeout);
    ++ended;
  });
}

TEST_P(Failures, AbortUnblocksEverybody) {
  auto world = make_world(3, GetParam());
  std::atomic<int> waiting{0};
  std::thread aborter([&] {
    while (waiting < 2) std::this_thread::sleep_for(milliseconds(1));
    std::this_thread::sleep_for(milliseconds(50));
    world[2]->abort("enough");
  });
  on_ranks(2, [&](int rank) {
    std::vector<float> data(100000, 1.0f);
    std::atomic<int> told{0};
    Operation op = allreduce_of(data);
    op.on_finished = [&](const std::exception_ptr& error) { told += error ? 1 : 100; };
    ++waiting;
    std::string text = failure_of<Aborted>(*world[rank], std::move(op));
    EXPECT_TRUE(contains(text, "aborted by rank 2: enough")) << text;
    EXPECT_EQ(told, 1);
  });
  aborter.join();
  EXPECT_THROW(world[2]->submit(barrier_op()), Aborted);
  EXPECT_NE(world[0]->error(), nullptr);
}

// The others count on it, so they must learn of it rather than go on with what is not there.
TEST_P(Failures, ClosingWithACollectiveUnderWayEndsItEverywhere) {
  auto world = make_world(2, GetParam());
  std::vector<float> mine(100000, 1.0f), theirs(100000, 1.0f);
  Request request = world[0]->submit(allreduce_of(mine));
  world[0].reset();
  EXPECT_THROW(request.wait(), Aborted);
  std::string text = failure_of<Error>(*world[1], allreduce_of(theirs));
  EXPECT_TRUE(contains(text, "rank 0")) << text;
}

// What a program's own reduction throws ends the operation and the communicator, not more.
TEST_P(Failures, AReductionThatThrows) {
  for (size_t count : {size_t{4}, size_t{50000}}) {
    on_world(2, GetParam(), [&](Communicator& comm) {
      std::vector<float> data(count, 1.0f);
      Operation op = allreduce_of(data);
      op.caller_waits = true;
      op.reduction = Reduction::custom;
      op.custom = [](const void*, void*, size_t, DataType) { throw std::runtime_error("no such sum"); };
      EXPECT_TRUE(contains(failure_of<IoError>(comm, op), "no such sum"));
      EXPECT_TRUE(contains(failure_of<IoError>(comm, barrier_op()), "no such sum"));
    });
  }
}

// What a child, forked now, returns; -signal where one ended it.
template <class Body>
int in_forked_child(Body body) {
  pid_t child = fork();
  if (child == 0) {
    alarm(60);
    body();
    _exit(0);
  }
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

// The median, in milliseconds, of what eleven blocking calls took, with pauses in which whoever drives goes to sleep.
double median_of_blocking_calls(Communicator& comm) {
  std::vector<double> took;
  for (int round = 0; round < 11; ++round) {
    std::this_thread::sleep_for(milliseconds(15));
    std::vector<float> data(16, 1.0f);
    Operation op = allreduce_of(data);
    op.caller_waits = true;
    auto start = Clock::now();
    comm.submit(std::move(op)).wait();
    took.push_back(std::chrono::duration<double, std::milli>(Clock::now() - start).count());
  }
  std::sort(took.begin(), took.end());
  return took[5];
}

// A receive that nothing comes for has a worker sleep with the turn, up to 100 ms at a time. A blocking call must not wait for that. In a
// child, where each of the ranks can have a worker of its own, as in a process of its own.
TEST_P(Failures, AReceiveThatWaitsDelaysNoBlockingCall) {
  int ended = in_forked_child([&] {
    ScopedEnv one_each("CCL_WORKER_COUNT", "2");
    on_world(2, GetParam(), [&](Communicator& comm) {
      const double before = median_of_blocking_calls(comm);
      std::vector<float> incoming(2), outgoing(2, 5.0f);
      Request receive = comm.submit(message_op(OpKind::recv, 1 - comm.rank(), incoming));
      receive.hand_over();
      std::this_thread::sleep_for(milliseconds(50));
      // The best of three: others use the machine. Both ranks make the same calls.
      double after = std::numeric_limits<double>::max();
      for (int attempt = 0; attempt < 3; ++attempt) after = std::min(after, median_of_blocking_calls(comm));
      EXPECT_LT(after, before + 30);
      comm.submit(message_op(OpKind::send, 1 - comm.rank(), outgoing)).wait();
      receive.wait();
      EXPECT_EQ(incoming[1], 5.0f);
    });
    std::fflush(stdout);
    _exit(HasFailure() ? 1 : 0);
  });
  EXPECT_EQ(ended, 0);
}

TEST_P(Failures, AWaitEndsAtItsOwnDeadline) {
  ScopedEnv sleeps_at_once("CCL_SPIN_COUNT", "0"), by_the_caller("CCL_WORKER_OFFLOAD", "0");
  auto world = make_world(2, GetParam());
  std::vector<float> data(1000, 1.0f);
  Request request = world[0]->submit(message_op(OpKind::recv, 1, data));
  auto shortest = Clock::duration::max();
  for (int round = 0; round < 5; ++round) {
    auto start = Clock::now();
    EXPECT_FALSE(request.wait_until(Deadline::after(milliseconds(20))));
    shortest = std::min(shortest, Clock::now() - start);
  }
  EXPECT_GE(shortest, milliseconds(20));
  EXPECT_LT(shortest, milliseconds(80));
  world[0]->abort("enough");
}

TEST_P(Failures, TestNeverBlocks) {
  std::atomic<bool> tested{false};
  on_world(2, GetParam(), [&](Communicator& comm) {
    std::vector<float> data(1000, 1.0f);
    // Rank 1 comes when rank 0 has not been kept from going on.
    Deadline patience = Deadline::after(milliseconds(20000));
    while (comm.rank() == 1 && !tested && !patience.passed()) std::this_thread::sleep_for(milliseconds(1));
    EXPECT_FALSE(patience.passed()) << "rank 0 was blocked";
    Request request = comm.submit(allreduce_of(data));
    if (comm.rank() == 0) {
      EXPECT_FALSE(request.test());
      EXPECT_FALSE(request.wait_until(Deadline::after(milliseconds(20))));
      tested = true;
    }
    request.wait();
    EXPECT_TRUE(request.test());
    EXPECT_EQ(data[0], 2.0f);
  });
}

// Two communicators used in opposite orders by two ranks: with one worker neither may keep the other from running.
TEST_P(Failures, CommunicatorsDoNotWaitForEachOther) {
  auto first = make_world(2, GetParam()), second = make_world(2, GetParam());
  on_ranks(2, [&](int rank) {
    std::vector<float> a(500000, 1.0f), b(500000, 1.0f);
    auto& x = rank == 0 ? *first[0] : *second[1];
    auto& y = rank == 0 ? *second[0] : *first[1];
    Request one = x.submit(allreduce_of(a));
    Request two = y.submit(allreduce_of(b));
    one.wait();
    two.wait();
    EXPECT_EQ(a[1], 2.0f);
    EXPECT_EQ(b[1], 2.0f);
  });
}

// Its copy of the parent's communicators is of no use to a child, but does no harm: not to it, not to the parent.
TEST_P(Failures, AForkedChildLeavesItsParentsCommunicatorAlone) {
  auto world = make_world(2, GetParam());
  // Static objects go when the process exits, the last one first. A leak checker, after them, would miss what the parent's threads hold.
  struct ChildEnd {
    bool in_child = false;
    ~ChildEnd() {
      if (in_child) _exit(0);
    }
  };
  static ChildEnd end;
  static std::vector<std::shared_ptr<Communicator>> kept;
  std::vector<float> data(8);
  Request pending = world[0]->submit(message_op(OpKind::recv, 1, data));
  EXPECT_EQ(in_forked_child([&] { world.clear(); }), 0);
  EXPECT_EQ(in_forked_child([&] {
    kept = world;
    end.in_child = true;
    exit(0);
  }), 0);
  EXPECT_EQ(in_forked_child([&] {
    world[0]->abort("of the child");
    bool told = contains(failure_of<InvalidArgument>(*world[0], barrier_op()), "belongs to the parent process");
    bool refused = false;
    try {
      pending.wait();
    } catch (const InvalidArgument&) {
      refused = true;
    }
    _exit(told && refused && world[0]->error() == nullptr && world[0]->rank() == 0 ? 0 : 1);
  }), 0);
  on_ranks(2, [&](int rank) {
    std::vector<float> sums(1000, 1.0f);
    world[rank]->submit(allreduce_of(sums)).wait();
    EXPECT_EQ(sums[999], 2.0f);
    sums.resize(8);
    if (rank == 1) world[rank]->submit(message_op(OpKind::send, 0, sums)).wait();
  });
  pending.wait();
}

INSTANTIATE_TEST_SUITE_P(Wirings, Failures,
                         testing::Values(Wiring::threads, Wiring::staged, Wiring::processes, Wiring::two_hosts, Wiring::all_apart),
                         [](const auto& info) { return name_of(info.param); });

// A wrong value must not wait until it would end the program in a destructor.
TEST(Environment, IsReadWhenACommunicatorIsMade) {
  ScopedEnv wrong("TRIREME_REPORT", "2");
  EXPECT_THROW(make_world(2, Wiring::threads), InvalidArgument);
}

// ---- arguments

TEST(Arguments, AreNamed) {
  auto world = Communicator::create_threads(1);
  Communicator& comm = *world[0];
  std::vector<float> data(4);
  auto complaint = [&](const std::function<void(Operation&)>& spoil) {
    Operation op = allreduce_of(data);
    spoil(op);
    return failure_of<InvalidArgument>(comm, op);
  };
  EXPECT_TRUE(contains(complaint([](Operation& op) { op.send_buffer = nullptr; }), "send_buffer is null"));
  EXPECT_TRUE(contains(complaint([](Operation& op) { op.recv_buffer = nullptr; }), "recv_buffer is null"));
  EXPECT_TRUE(contains(complaint([](Operation& op) { op.count = static_cast<size_t>(-3); }), "count"));
  EXPECT_TRUE(contains(complaint([](Operation& op) { op.type = static_cast<DataType>(77); }), "unknown datatype 77"));
  EXPECT_TRUE(contains(complaint([](Operation& op) { op.reduction = static_cast<Reduction>(77); }), "unknown reduction 77"));
  EXPECT_TRUE(contains(complaint([](Operation& op) { op.kind = OpKind::broadcast, op.root = -2; }), "root = -2"));
  EXPECT_TRUE(contains(complaint([](Operation& op) { op.kind = OpKind::send, op.peer = 5; }), "peer = 5"));
  EXPECT_TRUE(contains(complaint([](Operation& op) { op.kind = OpKind::allgather; }), "recv_blocks has 0 entries"));
  EXPECT_FALSE(complaint([](Operation& op) { op.reduction = Reduction::band; }).empty());
  // Nothing was sent: the communicator still works.
  EXPECT_NO_THROW(comm.submit(allreduce_of(data)).wait());
  EXPECT_THROW(Communicator::create(0, 0, nullptr), InvalidArgument);
  EXPECT_THROW(Communicator::create(2, 2, make_memory_store()), InvalidArgument);
  EXPECT_THROW(Communicator::create(2, -1, make_memory_store()), InvalidArgument);
  EXPECT_THROW(Communicator::create(2, 0, nullptr), InvalidArgument);
}

// ---- leaks

int entries_of(const char* directory) {
  int count = 0;
  DIR* dir = opendir(directory);
  while (readdir(dir)) ++count;
  closedir(dir);
  return count;
}

long resident_kib() {
  std::ifstream statm("/proc/self/statm");
  long pages = 0;
  statm >> pages >> pages;
  return pages * 4;
}

// The parent's threads do not exist in the child: what they would do is done by new ones.
TEST(Forks, AChildMakesCommunicatorsOfItsOwn) {
  auto sums = [] {
    std::atomic<int> right{0};
    on_world(2, Wiring::processes, [&](Communicator& comm) {
      std::vector<float> data(300000, 1.0f);
      Request request = comm.submit(allreduce_of(data));
      request.hand_over();
      Deadline patience = Deadline::after(std::chrono::seconds(60));
      while (!request.finished() && !patience.passed()) std::this_thread::sleep_for(milliseconds(1));
      right += request.finished() && data.back() == 2.0f;
    });
    return right.load();
  };
  EXPECT_EQ(sums(), 2);
  pid_t child = fork();
  if (child == 0) _exit(sums() == 2 ? 0 : 1);
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(sums(), 2);
}

// It inherits the handler of SIGUSR1, but not the descriptor that the handler writes to.
TEST(Forks, ASignalWritesIntoNoFileOfAChild) {
  auto world = make_world(2, Wiring::processes);
  EXPECT_EQ(in_forked_child([] {
    FILE* own[40] = {};
    for (FILE*& file : own) file = tmpfile();
    raise(SIGUSR1);
    for (FILE* file : own) {
      struct stat status {};
      if (!file || fstat(fileno(file), &status) != 0 || status.st_size != 0) _exit(1);
    }
  }), 0);
}

// A worker that the scheduler keeps waiting holds on to the last communicators for as long.
template <class Count>
void expect_at_most(const char* what, long limit, Count count) {
  Deadline patience = Deadline::after(milliseconds(20000));
  while (count() > limit && !patience.passed()) std::this_thread::sleep_for(milliseconds(5));
  EXPECT_LE(count(), limit) << what;
}

TEST(Leaks, ClosingWithSomethingPendingLeavesNothing) {
  std::vector<float> data(10);
  auto use = [&] {
    auto world = make_world(2, Wiring::processes);
    world[0]->submit(message_op(OpKind::recv, 1, data));
  };
  use();  // what is opened once
  int descriptors = entries_of("/proc/self/fd");
  for (int i = 0; i < 5; ++i) use();
  expect_at_most("descriptors", descriptors, [] { return entries_of("/proc/self/fd"); });
}

// A thousand in all, 256 of them at once.
TEST(Leaks, ManyCommunicatorsComeAndGo) {
  constexpr int kAll = 1000, kFirst = 50, kAtOnce = 256;
  auto use = [](int count, bool keep) {
    std::vector<std::vector<std::shared_ptr<Communicator>>> worlds;
    for (int i = 0; i < count; ++i) {
      auto world = make_world(2, Wiring::processes);
      on_ranks(2, [&](int rank) {
        std::vector<float> data(10000, 1.0f);
        world[rank]->submit(allreduce_of(data)).wait();
        ASSERT_EQ(data[9999], 2.0f);
      });
      if (keep) worlds.push_back(std::move(world));
    }
  };
  use(kFirst, false);  // what is allocated once
  int descriptors = entries_of("/proc/self/fd"), threads = entries_of("/proc/self/task");
  [[maybe_unused]] long memory = resident_kib();
  use(kAll - kFirst - kAtOnce, false);
#ifndef __SANITIZE_ADDRESS__  // which keeps freed memory for a while
  expect_at_most("KiB", memory + 16 * 1024, resident_kib);
#endif
  use(kAtOnce, true);
  expect_at_most("descriptors", descriptors + 2, [] { return entries_of("/proc/self/fd"); });
  expect_at_most("threads", threads + 1, [] { return entries_of("/proc/self/task"); });
}

}  // namespace
}  // namespace trireme::ccl
