// The backend from C++, without Python: ranks as threads that meet in a HashStore, and as processes that meet in a FileStore or a TCPStore.
#include "trireme/torch_ext/process_group/process_group_ccl.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <thread>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

namespace trireme::torch_ext {
namespace {

using std::chrono::milliseconds;
using StorePtr = c10::intrusive_ptr<c10d::Store>;

void on_ranks(int size, const std::function<void(ProcessGroupCCL&)>& body) {
  auto store = c10::make_intrusive<c10d::HashStore>();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        ProcessGroupCCL group(store, rank, size, c10::make_intrusive<ProcessGroupCCL::Options>(milliseconds(60000)));
        body(group);
      } catch (const std::exception& error) {
        ADD_FAILURE() << "rank " << rank << ": " << error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(ProcessGroup, AllreduceOfThreads) {
  on_ranks(3, [](ProcessGroupCCL& group) {
    for (int64_t count : {0, 1, 5000, 300000}) {
      std::vector<at::Tensor> tensors{at::full({count}, group.getRank() + 1.0)};
      group.allreduce(tensors, {})->wait(kNoTimeout);
      EXPECT_TRUE(at::equal(tensors[0], at::full({count}, 6.0))) << count;
    }
  });
}

TEST(ProcessGroup, TransposedTensorsComeBackTransposed) {
  on_ranks(2, [](ProcessGroupCCL& group) {
    at::Tensor base = at::arange(12, at::kFloat).reshape({3, 4});
    std::vector<at::Tensor> tensors{base.t()};
    group.allreduce(tensors, {})->wait(kNoTimeout);
    EXPECT_TRUE(at::equal(base, 2 * at::arange(12, at::kFloat).reshape({3, 4})));
  });
}

TEST(ProcessGroup, AFutureCompletesWithoutAnybodyWaiting) {
  on_ranks(2, [](ProcessGroupCCL& group) {
    std::vector<at::Tensor> tensors{at::ones({100000})};
    auto work = group.allreduce(tensors, {});
    auto future = work->getFuture();
    auto doubled = future->then([](c10::ivalue::Future& done) { return c10::IValue(done.value().toTensorVector()[0] * 2); }, c10::TensorType::get());
    doubled->waitAndThrow();
    EXPECT_EQ(doubled->value().toTensor()[7].item<float>(), 4.0f);
    EXPECT_TRUE(work->isCompleted());
  });
}

// The future of a window is made by whoever hears of its last operation first, which may be before a waiter could.
TEST(ProcessGroup, AWindowsFutureCompletesEveryTime) {
  on_ranks(2, [](ProcessGroupCCL& group) {
    for (int round = 0; round < 2000; ++round) {
      std::vector<at::Tensor> first{at::ones({70000})}, second{at::ones({70000})};
      group.startCoalescing();
      group.allreduce(first, {});
      group.allreduce(second, {});
      auto work = group.endCoalescing();
      auto future = work->getFuture();
      future->waitAndThrow();
      ASSERT_EQ(future->value().toTensorVector().size(), 2u);
    }
  });
}

TEST(ProcessGroup, WaitHasATimeoutOfItsOwn) {
  on_ranks(2, [](ProcessGroupCCL& group) {
    std::vector<at::Tensor> tensors{at::ones({10})};
    if (group.getRank() == 0) {
      auto work = group.recv(tensors, 1, 5);
      try {
        work->wait(milliseconds(50));
        ADD_FAILURE() << "nothing was sent";
      } catch (const c10::DistBackendError& error) {
        EXPECT_EQ(error.msg().find("RECV #"), std::string::npos) << "the library's number is another: " << error.msg();
      }
      EXPECT_FALSE(work->isCompleted());
      group.barrier({})->wait(kNoTimeout);
      EXPECT_TRUE(work->wait(kNoTimeout)) << "only that wait had ended";
    } else {
      group.barrier({})->wait(kNoTimeout);
      group.send(tensors, 0, 5)->wait(kNoTimeout);
    }
  });
}

TEST(ProcessGroup, PendingWorksAreWaitedForOrNamed) {
  on_ranks(2, [](ProcessGroupCCL& group) {
    std::vector<at::Tensor> first{at::ones({10})}, second{at::ones({10})};
    if (group.getRank() == 1) {
      for (int tag : {1, 2}) {
        group.barrier({})->wait(kNoTimeout);
        group.send(tag == 1 ? first : second, 0, tag)->wait(kNoTimeout);
      }
      group.barrier({})->wait(kNoTimeout);
      return;
    }
    auto work = group.recv(first, 1, 1);
    auto later = group.recv(second, 1, 2);
    group.setTimeout(milliseconds(1000));
    std::thread waiter([&] { EXPECT_THROW(group.waitForPendingWorks(), c10::DistBackendError); });
    EXPECT_THROW(group.waitForPendingWorks(), c10::DistBackendError) << "another thread's waiting takes nothing away";
    waiter.join();
    group.setTimeout(milliseconds(60000));
    group.barrier({})->wait(kNoTimeout);
    work->wait(kNoTimeout);
    group.setTimeout(milliseconds(300));
    EXPECT_THROW(group.waitForPendingWorks(), c10::DistBackendError) << "the second one is under way";
    group.setTimeout(milliseconds(60000));
    group.barrier({})->wait(kNoTimeout);
    group.waitForPendingWorks();
    EXPECT_TRUE(later->isCompleted());
    group.barrier({})->wait(kNoTimeout);
  });
}

TEST(ProcessGroup, ATimeoutNamesWhoDidNotCome) {
  std::atomic<int> told{0};
  on_ranks(3, [&](ProcessGroupCCL& group) {
    if (group.getRank() == 2) {
      while (told < 2) std::this_thread::sleep_for(milliseconds(5));
      return;
    }
    group.setTimeout(milliseconds(1000));
    try {
      group.barrier({})->wait(kNoTimeout);
      ADD_FAILURE() << "rank 2 never came";
    } catch (const c10::DistBackendError& error) {
      EXPECT_NE(error.msg().find("have not called it: 2;"), std::string::npos) << error.msg();
      EXPECT_NE(error.msg().find("barrier"), std::string::npos) << error.msg();
    }
    EXPECT_EQ(group.getError(), c10d::ErrorType::TIMEOUT);
    ++told;
  });
}

TEST(ProcessGroup, ALostRankIsNamedAsTheWorldKnowsIt) {
  auto store = c10::make_intrusive<c10d::HashStore>();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      auto options = c10::make_intrusive<ProcessGroupCCL::Options>(milliseconds(60000));
      options->group_name = "pair";
      options->global_ranks_in_group = {2, 5};
      ProcessGroupCCL group(store, rank, 2, options);
      if (rank == 1) return;  // leaves without a word
      std::vector<at::Tensor> tensors{at::ones({70000})};
      try {
        group.allreduce(tensors, {})->wait(kNoTimeout);
        ADD_FAILURE() << "nobody was there";
      } catch (const c10::DistError& error) {
        EXPECT_NE(error.msg().find("in group pair, rank 0 is global rank 2, rank 1 is global rank 5"), std::string::npos) << error.msg();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(ProcessGroup, SplitsAndAllocates) {
  auto store = c10::make_intrusive<c10d::HashStore>();
  on_ranks(3, [&](ProcessGroupCCL& group) {
    auto half = group.split(store, {2, 0}, nullptr);
    EXPECT_EQ(half == nullptr, group.getRank() == 1);
    if (!half) return;
    EXPECT_EQ(half->getSize(), 2);
    EXPECT_EQ(half->getRank(), group.getRank() == 2 ? 0 : 1);
    at::Tensor shared = half->allocateTensor(100000, at::kDouble);
    shared.fill_(half->getRank());
    std::vector<at::Tensor> tensors{shared};
    half->allreduce(tensors, {})->wait(kNoTimeout);
    EXPECT_EQ(shared.sum().item<double>(), 100000.0);
    half->shutdown();
    EXPECT_THROW(half->allreduce(tensors, {}), c10::DistBackendError);
  });
}

TEST(ProcessGroup, ArgumentsAreNamed) {
  on_ranks(1, [](ProcessGroupCCL& group) {
    std::vector<at::Tensor> none, two{at::ones(1), at::ones(1)}, one{at::ones(1)}, floats{at::ones(1, at::kFloat)};
    EXPECT_THROW(group.allreduce(none, {}), c10::ValueError);
    EXPECT_THROW(group.allreduce(two, {}), c10::ValueError);
    c10d::BroadcastOptions far;
    far.rootRank = 1;
    EXPECT_THROW(group.broadcast(one, far), c10::ValueError);
    c10d::AllreduceOptions bits;
    bits.reduceOp = c10d::ReduceOp::BAND;
    EXPECT_THROW(group.allreduce(floats, bits), c10::ValueError);
    EXPECT_TRUE(group.allreduce(one, {})->wait(kNoTimeout)) << "and the group is as it was";
  });
}

// The exit codes of `size` processes that run `body` each.
std::vector<int> exit_codes(int size, const std::function<void(int)>& body) {
  std::vector<pid_t> children;
  for (int rank = 0; rank < size; ++rank) {
    const pid_t child = fork();
    if (child == 0) {
      try {
        body(rank);
      } catch (const std::exception& error) {
        std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
        _exit(1);
      }
      _exit(0);
    }
    children.push_back(child);
  }
  std::vector<int> codes;
  for (pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    codes.push_back(status);
  }
  return codes;
}

void sum_and_check(const StorePtr& store, int rank, int size) {
  ProcessGroupCCL group(store, rank, size);
  std::vector<at::Tensor> tensors{at::full({70000}, rank + 1, at::kBFloat16)};
  group.allreduce(tensors, {})->wait(kNoTimeout);
  TORCH_CHECK(tensors[0].eq(size * (size + 1) / 2).all().item<bool>());
}

TEST(ProcessGroup, ProcessesMeetInAFileStore) {
  char path[] = "/tmp/trireme_store_XXXXXX";
  close(mkstemp(path));
  auto codes = exit_codes(2, [&](int rank) { sum_and_check(c10::make_intrusive<c10d::FileStore>(path, 2), rank, 2); });
  unlink(path);
  EXPECT_EQ(codes, std::vector<int>(2, 0));
}

TEST(ProcessGroup, ProcessesMeetInATcpStore) {
  c10d::TCPStoreOptions options;
  options.isServer = true;
  options.port = 0;
  options.waitWorkers = false;
  auto server = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
  options.isServer = false;
  options.port = server->getPort();
  auto codes = exit_codes(2, [&](int rank) { sum_and_check(c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options), rank, 2); });
  EXPECT_EQ(codes, std::vector<int>(2, 0));
}

}  // namespace
}  // namespace trireme::torch_ext
