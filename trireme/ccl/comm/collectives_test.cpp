// Every collective against its definition: ranks x wirings x sizes around every threshold, in place and out of place.
#include <atomic>
#include <chrono>
#include <cstring>
#include <numeric>

#include "trireme/base/error.h"
#include "trireme/ccl/comm/test_worlds.h"
#include "trireme/ccl/node/segment.h"

namespace trireme::ccl {
namespace {

class Collectives : public OnWorlds {};

// Around the inline limit, the early limit on two ranks, the tile, the eager limits, odd and empty.
const std::vector<size_t> kCounts = {0, 1, 3, 1000, kInlineBytes / 4, kInlineBytes / 4 + 1, 40001, kEarlyBytes / 4, kEarlyBytes / 4 + 1, 300007};

// An input that differs by rank and element and sums exactly in float.
float value(int rank, size_t i) { return static_cast<float>((rank + 1) * 3 + static_cast<int>(i % 101)); }

std::vector<float> input(int rank, size_t count) {
  std::vector<float> data(count);
  for (size_t i = 0; i < count; ++i) data[i] = value(rank, i);
  return data;
}

std::vector<float> total(int ranks, size_t count) {
  std::vector<float> sums(count);
  for (size_t i = 0; i < count; ++i) {
    for (int rank = 0; rank < ranks; ++rank) sums[i] += value(rank, i);
  }
  return sums;
}

std::vector<Block> blocks(std::vector<float>& data, const std::vector<size_t>& counts) {
  std::vector<Block> list;
  size_t at = 0;
  for (size_t count : counts) {
    list.push_back({data.data() + at, count * sizeof(float)});
    at += count;
  }
  return list;
}

// Rank r's share of a v-collective: different for each, one of them empty.
size_t share(int rank, size_t count) { return rank == 1 ? 0 : count / 3 + static_cast<size_t>(rank); }

TEST_P(Collectives, Allreduce) {
  run([](Communicator& comm) {
    for (size_t count : kCounts) {
      std::vector<float> in = input(comm.rank(), count), out(count + 1, -1.0f), expected = total(comm.size(), count);
      Operation op = make(OpKind::allreduce, count);
      op.send_buffer = in.data();
      op.recv_buffer = out.data();
      comm.submit(op).wait();
      EXPECT_EQ(out.back(), -1.0f) << "wrote past the end";
      out.pop_back();
      ASSERT_EQ(out, expected) << count;
      op.send_buffer = op.recv_buffer = in.data();
      comm.submit(op).wait();
      ASSERT_EQ(in, expected) << count << " in place";
    }
  });
}

TEST_P(Collectives, AllreduceWithSomeInPlace) {
  run([](Communicator& comm) {
    size_t count = 50000;
    std::vector<float> in = input(comm.rank(), count), out(count);
    Operation op = make(OpKind::allreduce, count);
    op.send_buffer = in.data();
    op.recv_buffer = comm.rank() == 0 ? in.data() : out.data();
    comm.submit(op).wait();
    EXPECT_EQ(comm.rank() == 0 ? in : out, total(comm.size(), count));
  });
}

TEST_P(Collectives, AllreduceRing) {
  ScopedEnv ring("CCL_ALLREDUCE", "ring");
  run([](Communicator& comm) {
    for (size_t count : kCounts) {
      std::vector<float> in = input(comm.rank(), count), out(count);
      Operation op = make(OpKind::allreduce, count);
      op.send_buffer = in.data();
      op.recv_buffer = out.data();
      comm.submit(op).wait();
      ASSERT_EQ(out, total(comm.size(), count)) << count;
    }
  });
}

TEST_P(Collectives, ReduceToEveryRoot) {
  run([](Communicator& comm) {
    for (size_t count : kCounts) {
      for (int root = 0; root < comm.size(); ++root) {
        std::vector<float> in = input(comm.rank(), count), out(count, -1.0f);
        Operation op = make(OpKind::reduce, count);
        op.root = root;
        op.send_buffer = in.data();
        op.recv_buffer = comm.rank() == root ? out.data() : nullptr;
        comm.submit(op).wait();
        if (comm.rank() == root) {
          ASSERT_EQ(out, total(comm.size(), count)) << count;
        }
        ASSERT_EQ(in, input(comm.rank(), count)) << "the input changed";
      }
    }
  });
}

TEST_P(Collectives, BroadcastFromEveryRoot) {
  run([](Communicator& comm) {
    for (size_t count : kCounts) {
      for (int root = 0; root < comm.size(); ++root) {
        std::vector<float> data = input(comm.rank(), count), out(count);
        Operation op = make(OpKind::broadcast, count);
        op.root = root;
        op.send_buffer = op.recv_buffer = data.data();
        comm.submit(op).wait();
        ASSERT_EQ(data, input(root, count)) << count;
        data = input(comm.rank(), count);
        op.send_buffer = data.data();
        op.recv_buffer = out.data();
        comm.submit(op).wait();
        ASSERT_EQ(out, input(root, count)) << count << " out of place";
      }
    }
  });
}

TEST_P(Collectives, AllgatherOfDifferentCounts) {
  run([](Communicator& comm) {
    for (size_t count : kCounts) {
      std::vector<size_t> counts;
      std::vector<float> expected;
      for (int rank = 0; rank < comm.size(); ++rank) {
        counts.push_back(share(rank, count));
        std::vector<float> theirs = input(rank, counts.back());
        expected.insert(expected.end(), theirs.begin(), theirs.end());
      }
      std::vector<float> in = input(comm.rank(), counts[comm.rank()]), out(expected.size());
      Operation op = make(OpKind::allgather, in.size());
      op.send_buffer = in.data();
      op.recv_blocks = blocks(out, counts);
      comm.submit(op).wait();
      ASSERT_EQ(out, expected) << count;
      // In place: the own block is where it belongs.
      std::vector<float> place(expected.size());
      op.recv_blocks = blocks(place, counts);
      op.send_buffer = op.recv_blocks[comm.rank()].data;
      if (!in.empty()) std::memcpy(op.recv_blocks[comm.rank()].data, in.data(), in.size() * sizeof(float));
      comm.submit(op).wait();
      ASSERT_EQ(place, expected) << count << " in place";
    }
  });
}

TEST_P(Collectives, AlltoallOfDifferentCounts) {
  run([](Communicator& comm) {
    auto pair = [&](int from, int to, size_t count) { return share((from + 2 * to) % comm.size(), count) / 2; };
    for (size_t count : kCounts) {
      std::vector<size_t> out_counts, in_counts;
      std::vector<float> sent, expected;
      for (int peer = 0; peer < comm.size(); ++peer) {
        out_counts.push_back(pair(comm.rank(), peer, count));
        in_counts.push_back(pair(peer, comm.rank(), count));
        for (size_t i = 0; i < out_counts.back(); ++i) sent.push_back(value(comm.rank() * 17 + peer, i));
        for (size_t i = 0; i < in_counts.back(); ++i) expected.push_back(value(peer * 17 + comm.rank(), i));
      }
      std::vector<float> received(expected.size());
      Operation op = make(OpKind::alltoall, 0);
      op.send_blocks = blocks(sent, out_counts);
      op.recv_blocks = blocks(received, in_counts);
      comm.submit(op).wait();
      ASSERT_EQ(received, expected) << count;
    }
  });
}

TEST_P(Collectives, AlltoallInPlace) {
  run([](Communicator& comm) {
    for (size_t count : {size_t{5}, size_t{20000}}) {
      std::vector<float> data, expected;
      for (int peer = 0; peer < comm.size(); ++peer) {
        for (size_t i = 0; i < count; ++i) {
          data.push_back(value(comm.rank() * 17 + peer, i));
          expected.push_back(value(peer * 17 + comm.rank(), i));
        }
      }
      Operation op = make(OpKind::alltoall, 0);
      op.send_blocks = op.recv_blocks = blocks(data, std::vector<size_t>(static_cast<size_t>(comm.size()), count));
      comm.submit(op).wait();
      ASSERT_EQ(data, expected) << count;
    }
  });
}

TEST_P(Collectives, ReduceScatterOfDifferentCounts) {
  run([](Communicator& comm) {
    for (size_t count : kCounts) {
      std::vector<size_t> counts;
      size_t all = 0, before = 0;
      for (int rank = 0; rank < comm.size(); ++rank) {
        if (rank == comm.rank()) before = all;
        counts.push_back(share(rank, count));
        all += counts.back();
      }
      std::vector<float> in = input(comm.rank(), all), sums = total(comm.size(), all), out(counts[comm.rank()]);
      std::vector<float> expected(sums.begin() + before, sums.begin() + before + out.size());
      Operation op = make(OpKind::reduce_scatter, 0);
      op.recv_counts = counts;
      op.send_buffer = in.data();
      op.recv_buffer = out.data();
      comm.submit(op).wait();
      ASSERT_EQ(out, expected) << count;
      // The result over the start of the input, as in-place callers have it.
      op.recv_buffer = in.data();
      comm.submit(op).wait();
      in.resize(out.size());
      ASSERT_EQ(in, expected) << count << " in place";
    }
  });
}

TEST_P(Collectives, GatherAndScatter) {
  run([](Communicator& comm) {
    for (size_t count : kCounts) {
      int root = comm.size() - 1;
      std::vector<size_t> counts;
      std::vector<float> whole;
      for (int rank = 0; rank < comm.size(); ++rank) {
        counts.push_back(share(rank, count));
        std::vector<float> theirs = input(rank, counts.back());
        whole.insert(whole.end(), theirs.begin(), theirs.end());
      }
      std::vector<float> mine = input(comm.rank(), counts[comm.rank()]), gathered(whole.size());
      Operation op = make(OpKind::gather, mine.size());
      op.root = root;
      op.send_buffer = mine.data();
      if (comm.rank() == root) op.recv_blocks = blocks(gathered, counts);
      comm.submit(op).wait();
      if (comm.rank() == root) {
        ASSERT_EQ(gathered, whole) << count;
      }
      std::vector<float> back(mine.size());
      op = make(OpKind::scatter, back.size());
      op.root = root;
      if (comm.rank() == root) op.send_blocks = blocks(whole, counts);
      op.recv_buffer = back.data();
      comm.submit(op).wait();
      ASSERT_EQ(back, mine) << count;
    }
  });
}

TEST_P(Collectives, BarrierHoldsEverybody) {
  std::atomic<int> arrived{0};
  run([&](Communicator& comm) {
    for (int round = 1; round <= 20; ++round) {
      ++arrived;
      comm.submit(make(OpKind::barrier, 0)).wait();
      EXPECT_GE(arrived.load(), round * comm.size());
      comm.submit(make(OpKind::barrier, 0)).wait();
    }
  });
}

TEST_P(Collectives, ManyInFlightKeepTheirOrder) {
  run([](Communicator& comm) {
    constexpr int kOperations = 40;
    std::vector<std::vector<float>> data;
    std::vector<Request> requests;
    for (int i = 0; i < kOperations; ++i) data.push_back(input(comm.rank() + i, 100 + static_cast<size_t>(i) * 500));
    for (int i = 0; i < kOperations; ++i) {
      Operation op = make(i % 3 ? OpKind::allreduce : OpKind::broadcast, data[i].size());
      op.root = i % 3 ? -1 : i % comm.size();
      op.send_buffer = op.recv_buffer = data[i].data();
      requests.push_back(comm.submit(op));
    }
    for (int i = kOperations - 1; i >= 0; --i) requests[i].wait();
    for (int i = 0; i < kOperations; ++i) {
      std::vector<float> expected(data[i].size());
      for (size_t e = 0; e < expected.size(); ++e) {
        for (int rank = 0; rank < comm.size(); ++rank) expected[e] += i % 3 ? value(rank + i, e) : 0;
        if (i % 3 == 0) expected[e] = value(i % comm.size() + i, e);
      }
      ASSERT_EQ(data[i], expected) << i;
    }
  });
}

// Nobody waits: a worker does the work, and whoever asked to be told is told once, with the result in place.
TEST_P(Collectives, HandedOverAndTold) {
  run([](Communicator& comm) {
    for (size_t count : {size_t{3}, size_t{40001}, size_t{300007}}) {
      std::vector<float> data = input(comm.rank(), count);
      const std::vector<float> expected = total(comm.size(), count);
      std::atomic<int> told{0};
      std::atomic<bool> right{false};
      auto owner = std::make_shared<int>(1);
      Operation op = make(OpKind::allreduce, count);
      op.send_buffer = op.recv_buffer = data.data();
      op.on_finished = [&, owner](const std::exception_ptr& error) {
        right = !error && data == expected;
        ++told;
      };
      Request request = comm.submit(std::move(op));
      request.hand_over();
      Deadline patience = Deadline::after(std::chrono::seconds(60));
      while (!request.finished() && !patience.passed()) std::this_thread::sleep_for(std::chrono::microseconds(100));
      ASSERT_TRUE(request.finished());
      EXPECT_EQ(told, 1);
      EXPECT_TRUE(right);
      EXPECT_EQ(owner.use_count(), 1) << "what the operation held is let go";
    }
  });
}

// What on_start writes is what is reduced, and the operation before it is complete by then.
TEST_P(Collectives, PreparedWhenItStarts) {
  run([](Communicator& comm) {
    for (size_t count : {size_t{3}, size_t{40001}, size_t{300007}}) {
      std::vector<float> first = input(comm.rank(), count), second(count), expected = total(comm.size(), count);
      auto owner = std::make_shared<int>(1);
      Operation before = make(OpKind::allreduce, count), op = make(OpKind::allreduce, count);
      before.send_buffer = before.recv_buffer = first.data();
      op.send_buffer = op.recv_buffer = second.data();
      op.on_start = [&, owner] { second = first; };
      Request earlier = comm.submit(std::move(before)), request = comm.submit(std::move(op));
      request.wait();
      for (float& sum : expected) sum *= static_cast<float>(comm.size());
      EXPECT_EQ(second, expected);
      EXPECT_EQ(owner.use_count(), 1) << "what it held is let go";
      earlier.wait();
    }
  });
}

TEST_P(Collectives, MessagesInAnyOrder) {
  run([](Communicator& comm) {
    for (size_t count : {size_t{0}, size_t{10}, size_t{5000}, size_t{200000}}) {
      // Everybody sends to everybody, itself included, with two tags, and receives them in the opposite order.
      std::vector<Request> requests;
      std::vector<std::vector<float>> in, out;
      for (int peer = 0; peer < comm.size(); ++peer) {
        for (int tag = 0; tag < 2; ++tag) in.push_back(input(comm.rank() * 2 + tag, count)), out.emplace_back(count);
      }
      for (int peer = 0; peer < comm.size(); ++peer) {
        for (int tag = 0; tag < 2; ++tag) {
          Operation op = make(OpKind::send, count);
          op.peer = peer;
          op.tag = tag;
          op.send_buffer = in[2 * peer + tag].data();
          requests.push_back(comm.submit(op));
        }
      }
      for (int peer = 0; peer < comm.size(); ++peer) {
        for (int tag = 1; tag >= 0; --tag) {
          Operation op = make(OpKind::recv, count);
          op.peer = peer;
          op.tag = tag;
          op.recv_buffer = out[2 * peer + tag].data();
          requests.push_back(comm.submit(op));
        }
      }
      for (Request& request : requests) request.wait();
      for (int peer = 0; peer < comm.size(); ++peer) {
        for (int tag = 0; tag < 2; ++tag) ASSERT_EQ(out[2 * peer + tag], input(peer * 2 + tag, count));
      }
    }
  });
}

TEST_P(Collectives, MessagesFromAnySource) {
  run([](Communicator& comm) {
    if (comm.rank() != 0) {
      float mine = static_cast<float>(comm.rank());
      Operation op = make(OpKind::send, 1);
      op.peer = 0;
      op.tag = 100 + comm.rank();
      op.send_buffer = &mine;
      comm.submit(op).wait();
      return;
    }
    std::vector<bool> heard(static_cast<size_t>(comm.size()));
    for (int i = 1; i < comm.size(); ++i) {
      float value[4];
      Operation op = make(OpKind::recv, 4);
      op.peer = kAnySource;
      op.tag = kAnyTag;
      op.recv_buffer = value;
      Request request = comm.submit(op);
      request.wait();
      EXPECT_EQ(static_cast<int>(value[0]), request.source());
      EXPECT_EQ(request.source_tag(), 100 + request.source());
      EXPECT_EQ(request.received_bytes(), sizeof(float));
      EXPECT_FALSE(heard[request.source()]);
      heard[request.source()] = true;
    }
  });
}

// However many messages lie at a rank that has not asked for them, a collective that comes after them gets through.
TEST(Messages, ThatWaitDoNotHoldUpACollective) {
  constexpr int kMessages = 1500;
  constexpr size_t kCount = 15000;  // small enough to be sent at once
  CommunicatorOptions options;
  options.timeout = std::chrono::seconds(30);
  auto body = [&](Communicator& comm) {
    std::vector<float> data = input(0, kCount), got(kCount);
    std::vector<Request> requests;
    Operation message = make(comm.rank() == 0 ? OpKind::send : OpKind::recv, kCount);
    message.peer = 1 - comm.rank();
    message.send_buffer = data.data();
    message.recv_buffer = got.data();
    for (int i = 0; i < kMessages && comm.rank() == 0; ++i) requests.push_back(comm.submit(message));
    float one = 1, sum = 0;
    Operation op = make(OpKind::allreduce, 1);
    op.send_buffer = &one;
    op.recv_buffer = &sum;
    comm.submit(op).wait();
    EXPECT_EQ(sum, 2.0f);
    for (int i = 0; i < kMessages && comm.rank() == 1; ++i) comm.submit(message).wait();
    for (Request& request : requests) request.wait();
    EXPECT_TRUE(comm.rank() == 0 || got == data);
  };
  on_world(2, Wiring::all_apart, body, options);
}

TEST_P(Collectives, SplitByParity) {
  run([](Communicator& comm) {
    auto half = comm.split(comm.rank() % 2, -comm.rank());
    ASSERT_EQ(half->size(), (comm.size() + 1 - comm.rank() % 2) / 2);
    float mine = static_cast<float>(comm.rank()), sum = 0, expected = 0;
    for (int rank = comm.rank() % 2; rank < comm.size(); rank += 2) expected += static_cast<float>(rank);
    Operation op = make(OpKind::allreduce, 1);
    op.send_buffer = &mine;
    op.recv_buffer = &sum;
    half->submit(op).wait();
    EXPECT_EQ(sum, expected);
    // Keys count downwards, so the last of the parent is the first here.
    EXPECT_EQ(half->rank(), half->size() - 1 - comm.rank() / 2);
    EXPECT_EQ(comm.split(comm.rank() == 0 ? -1 : 0, 0) == nullptr, comm.rank() == 0);
  });
}

// The first rank of a group cannot listen anywhere: every rank learns it, and the communicator lives.
TEST(Split, FailsOnEveryRankWhereOneCannotInvite) {
  CommunicatorOptions options;
  options.timeout = std::chrono::seconds(5);
  auto world = make_world(3, Wiring::threads, options);
  {
    ScopedEnv nowhere("TRIREME_IFACE", "no-such-interface");
    on_ranks(3, [&](int rank) {
      try {
        world[rank]->split(rank == 2 ? -1 : 0, 0);
        ADD_FAILURE() << "rank " << rank;
      } catch (const IoError& error) {
        EXPECT_NE(std::string(error.what()).find("rank 0 cannot invite the others"), std::string::npos) << error.what();
        EXPECT_NE(std::string(error.what()).find("no-such-interface"), std::string::npos) << error.what();
      }
    });
  }
  on_ranks(3, [&](int rank) { EXPECT_EQ(world[rank]->split(0, 0)->size(), 3); });
}

// Every type and reduction gives, on every rank, exactly the bits of the reference; also in pieces and between hosts.
TEST_P(Collectives, SharedBuffers) {
  run([](Communicator& comm) {
    for (int round = 0; round < 3; ++round) {
      size_t count = 100000;
      auto in = static_cast<float*>(Communicator::allocate_shared(count * sizeof(float)));
      auto out = static_cast<float*>(Communicator::allocate_shared(count * sizeof(float)));
      EXPECT_TRUE(Communicator::is_shared(in + count - 1));
      std::vector<float> mine = input(comm.rank(), count);
      std::memcpy(in, mine.data(), count * sizeof(float));
      Operation op = make(OpKind::allreduce, count);
      op.send_buffer = in;
      op.recv_buffer = out;
      comm.submit(op).wait();
      EXPECT_EQ(std::vector<float>(out, out + count), total(comm.size(), count));
      op.recv_buffer = in;
      comm.submit(op).wait();
      EXPECT_EQ(std::vector<float>(in, in + count), total(comm.size(), count));
      Communicator::release_shared(in);
      Communicator::release_shared(out);
    }
  });
}

// Sizes at which two ranks change to slots, and mapped results go around the caches; blocks that are copied around them, too.
TEST(LargeCollectives, GiveTheSameResults) {
  constexpr size_t kCount = (36 << 20) / sizeof(float) + 5;
  std::vector<float> expected = total(2, kCount);
  for (Wiring wiring : {Wiring::threads, Wiring::staged, Wiring::processes}) {
    on_world(2, wiring, [&](Communicator& comm) {
      std::vector<float> in = input(comm.rank(), kCount), out(kCount);
      auto shared = static_cast<float*>(Communicator::allocate_shared(kCount * sizeof(float)));
      for (float* result : {out.data(), shared}) {
        Operation op = make(OpKind::allreduce, kCount);
        op.send_buffer = in.data();
        op.recv_buffer = result;
        comm.submit(op).wait();
        ASSERT_TRUE(std::equal(expected.begin(), expected.end(), result)) << name_of(wiring);
      }
      Communicator::release_shared(shared);
      std::vector<float> gathered(2 * kCount);
      Operation op = make(OpKind::allgather, kCount);
      op.send_buffer = in.data();
      op.recv_blocks = blocks(gathered, {kCount, kCount});
      comm.submit(op).wait();
      for (int rank = 0; rank < 2; ++rank) {
        std::vector<float> theirs = input(rank, kCount);
        ASSERT_TRUE(std::equal(theirs.begin(), theirs.end(), gathered.data() + static_cast<size_t>(rank) * kCount)) << name_of(wiring);
      }
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Worlds, Collectives, testing::ValuesIn(worlds()), testing::PrintToStringParamName());

}  // namespace
}  // namespace trireme::ccl
