// Every collective against its definition: ranks x wirings x sizes around every threshold, in place and out of place.
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>

#include "trireme/base/error.h"
#include "trireme/base/float16.h"
#include "trireme/ccl/comm/test_world.h"
#include "trireme/ccl/node/segment.h"
#include "trireme/ccl/reduction/reducer.h"

namespace trireme::ccl {
namespace {

struct World {
  int ranks;
  Wiring wiring;
};

std::ostream& operator<<(std::ostream& out, const World& world) { return out << world.ranks << "_" << name_of(world.wiring); }

class Collectives : public testing::TestWithParam<World> {
 protected:
  void run(const std::function<void(Communicator&)>& body) { on_world(GetParam().ranks, GetParam().wiring, body); }
};

// Around the inline limit, the tile, the eager limits, odd and empty.
const std::vector<size_t> kCounts = {0, 1, 3, 1000, kInlineBytes / 4, kInlineBytes / 4 + 1, 40001, 300007};

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

Operation make(OpKind kind, size_t count) {
  Operation op;
  op.kind = kind;
  op.type = DataType::float32;
  op.count = count;
  return op;
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

// Every type and reduction gives, on every rank, exactly the bits of the reference; also in pieces and between hosts.
TEST_P(Collectives, EveryTypeAndReduction) {
  run([](Communicator& comm) {
    for (int t = 0; t < kDataTypes; ++t) {
      for (int r = 0; r < kReductions - 1; ++r) {
        auto type = static_cast<DataType>(t);
        auto reduction = static_cast<Reduction>(r);
        try {
          Reducer(type, reduction, comm.size());
        } catch (const InvalidArgument&) {
          continue;
        }
        for (size_t count : {size_t{33}, size_t{9001}}) {
          size_t bytes = count * size_of(type);
          auto fill = [&](int rank) {
            std::vector<std::byte> data(bytes);
            for (size_t i = 0; i < count; ++i) {
              int number = static_cast<int>((i * 7 + static_cast<size_t>(rank) * 3) % 5) + 1;
              std::byte* at = data.data() + i * size_of(type);
              if (type == DataType::float16) *reinterpret_cast<uint16_t*>(at) = to_float16(static_cast<float>(number) / 3).bits;
              else if (type == DataType::bfloat16) *reinterpret_cast<uint16_t*>(at) = to_bfloat16(static_cast<float>(number) / 3).bits;
              else if (type == DataType::float32) *reinterpret_cast<float*>(at) = static_cast<float>(number) / 3;
              else if (type == DataType::float64) *reinterpret_cast<double*>(at) = static_cast<double>(number) / 3;
              else if (type == DataType::boolean) *at = static_cast<std::byte>(number % 2);
              else *at = static_cast<std::byte>(number);
            }
            return data;
          };
          std::vector<std::vector<std::byte>> inputs;
          std::vector<const void*> sources;
          for (int rank = 0; rank < comm.size(); ++rank) inputs.push_back(fill(rank));
          for (auto& in : inputs) sources.push_back(in.data());
          std::vector<std::byte> expected(bytes), out(bytes);
          Operation op;
          op.kind = OpKind::allreduce;
          op.type = type;
          op.reduction = reduction;
          op.count = count;
          op.send_buffer = inputs[comm.rank()].data();
          op.recv_buffer = out.data();
          comm.submit(op).wait();
          reduce_reference(type, reduction, comm.size(), sources, expected.data(), count, Stage::whole);
          // In one host the order is that of the reference; between hosts sums are grouped by host, so floating point may differ in the last bits:
          // then all ranks must still agree.
          bool floating = t >= static_cast<int>(DataType::float16) && t <= static_cast<int>(DataType::float64);
          int hosts = *std::max_element(comm.hosts().begin(), comm.hosts().end()) + 1;
          bool grouped = hosts != 1 && hosts != comm.size();
          if (!floating || !grouped) {
            ASSERT_EQ(out, expected) << name_of(type) << " " << name_of(reduction) << " " << count;
          }
          std::vector<std::byte> first = out;
          Operation check;
          check.kind = OpKind::broadcast;
          check.count = bytes;
          check.root = 0;
          check.send_buffer = check.recv_buffer = first.data();
          comm.submit(check).wait();
          ASSERT_EQ(out, first) << name_of(type) << " " << name_of(reduction) << ": ranks differ";
        }
      }
    }
  });
}

TEST_P(Collectives, CustomReduction) {
  run([](Communicator& comm) {
    for (size_t count : {size_t{10}, size_t{30000}}) {
      std::vector<int64_t> in(count, comm.rank() + 2), out(count);
      Operation op;
      op.kind = OpKind::allreduce;
      op.type = DataType::int64;
      op.reduction = Reduction::custom;
      op.custom = [](const void* from, void* into, size_t n, DataType) {
        for (size_t i = 0; i < n; ++i) static_cast<int64_t*>(into)[i] *= static_cast<const int64_t*>(from)[i];
      };
      op.count = count;
      op.send_buffer = in.data();
      op.recv_buffer = out.data();
      comm.submit(op).wait();
      int64_t expected = 1;
      for (int rank = 0; rank < comm.size(); ++rank) expected *= rank + 2;
      EXPECT_EQ(out, std::vector<int64_t>(count, expected));
    }
  });
}

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

// Random data of many magnitudes, and data of which almost everything cancels: what is left of a pair of ranks is a thousandth.
bfloat16 spread(int rank, size_t i) {
  std::minstd_rand random(static_cast<unsigned>(i * 1000003 + static_cast<size_t>(rank) + 1));
  random.discard(2);
  auto bits = static_cast<int>(random());
  return to_bfloat16(std::ldexp(static_cast<float>((bits >> 5) - (1 << 25)), bits % 17 - 34));
}
bfloat16 cancelling(int rank, size_t i) {
  float large = to_float(spread(rank / 2, i));
  return to_bfloat16(rank % 2 == 0 ? large : -large * (1 - 0.001f * static_cast<float>(i % 7)));
}

// The error of a bf16 sum S of P ranks is at most 2^-8 |S| + P 2^-24 sum |x_i|: it is accumulated in fp32 and rounded once.
void check_bfloat16_sum(Communicator& comm, OpKind kind, size_t count, bfloat16 (*at)(int rank, size_t i)) {
  bool scatter = kind == OpKind::reduce_scatter;
  size_t shares = scatter ? static_cast<size_t>(comm.size()) : 1, first = scatter ? count * static_cast<size_t>(comm.rank()) : 0;
  std::vector<bfloat16> in(count * shares), out(count), again(count);
  for (size_t i = 0; i < in.size(); ++i) in[i] = at(comm.rank(), i);
  Operation op = make(kind, scatter ? 0 : count);
  op.type = DataType::bfloat16;
  op.root = kind == OpKind::reduce ? comm.size() - 1 : -1;
  if (scatter) op.recv_counts.assign(shares, count);
  op.send_buffer = in.data();
  op.recv_buffer = out.data();
  comm.submit(op).wait();
  op.recv_buffer = again.data();
  comm.submit(op).wait();
  if (kind == OpKind::reduce && comm.rank() != op.root) return;
  for (size_t i = 0; i < count; ++i) {
    double sum = 0, magnitude = 0;
    for (int rank = 0; rank < comm.size(); ++rank) {
      double x = to_float(at(rank, first + i));
      sum += x;
      magnitude += std::abs(x);
    }
    double bound = std::ldexp(std::abs(sum), -8) + comm.size() * std::ldexp(magnitude, -24);
    ASSERT_LE(std::abs(to_float(out[i]) - sum), bound) << name_of(kind) << " of " << count << ", element " << i;
    ASSERT_EQ(out[i].bits, again[i].bits) << "repeated, the bits differ";
  }
}

TEST_P(Collectives, Bfloat16SumsAreExactAndRepeatable) {
  run([](Communicator& comm) {
    for (OpKind kind : {OpKind::allreduce, OpKind::reduce, OpKind::reduce_scatter}) {
      for (size_t count : {size_t{301}, size_t{20001}}) {
        check_bfloat16_sum(comm, kind, count, spread);
        check_bfloat16_sum(comm, kind, count, cancelling);
      }
    }
  });
}

std::vector<World> worlds() {
  std::vector<World> list;
  for (int ranks : {1, 2, 3, 4, 7}) {
    list.push_back({ranks, Wiring::threads});
    if (ranks > 1) list.push_back({ranks, Wiring::staged});
  }
  for (int ranks : {1, 2, 4}) list.push_back({ranks, Wiring::processes});
  for (int ranks : {2, 3, 4}) list.push_back({ranks, Wiring::all_apart});
  for (int ranks : {3, 4, 7}) list.push_back({ranks, Wiring::two_hosts});
  for (int ranks : {3, 5}) list.push_back({ranks, Wiring::uneven_hosts});
  return list;
}

INSTANTIATE_TEST_SUITE_P(Worlds, Collectives, testing::ValuesIn(worlds()), testing::PrintToStringParamName());

}  // namespace
}  // namespace trireme::ccl
