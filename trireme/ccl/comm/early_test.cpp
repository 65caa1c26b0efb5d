// Payloads that lie in shared memory before their ranks meet: their memory is never used again too soon, and ranks that need no copy go along.
#include <chrono>
#include <cmath>
#include <random>
#include <thread>

#include "trireme/ccl/comm/test_worlds.h"
#include "trireme/ccl/node/segment.h"
#include "trireme/ccl/reduction/reducer.h"

namespace trireme::ccl {
namespace {

class Early : public OnWorlds {};

float value(int rank, int round, size_t i) { return static_cast<float>(rank * 5 + round * 3 + static_cast<int>(i % 61)); }

std::vector<float> input(int rank, int round, size_t count) {
  std::vector<float> data(count);
  for (size_t i = 0; i < count; ++i) data[i] = value(rank, round, i);
  return data;
}

float total(int ranks, int round, size_t i) {
  float sum = 0;
  for (int rank = 0; rank < ranks; ++rank) sum += value(rank, round, i);
  return sum;
}

Operation allreduce_of(const float* in, float* out, size_t count) {
  Operation op = make(OpKind::allreduce, count);
  op.send_buffer = in;
  op.recv_buffer = out;
  return op;
}

// The first wrong element, or `count`.
size_t first_wrong(const float* out, int ranks, int round, size_t count) {
  size_t i = 0;
  while (i < count && out[i] == total(ranks, round, i)) ++i;
  return i;
}

// Every rank is now and then late to read, when the others have begun the next operation, of whatever size, already.
TEST_P(Early, SlotsOfOperationsInARowAreApart) {
  run([](Communicator& comm) {
    constexpr size_t kBytes[] = {kInlineBytes, kInlineBytes + 4, 20000, 65536, 100000, kEarlyBytes / 3, kEarlyBytes, kEarlyBytes + 64, 700000};
    std::mt19937 sizes(11), delays(static_cast<unsigned>(comm.rank()));
    Operation slow = make(OpKind::allreduce, 0);
    slow.reduction = Reduction::custom;
    slow.custom = [&delays](const void* in, void* inout, size_t count, DataType) {
      if (delays() % 4 == 0) std::this_thread::sleep_for(std::chrono::microseconds(delays() % 2000));
      for (size_t i = 0; i < count; ++i) static_cast<float*>(inout)[i] += static_cast<const float*>(in)[i];
    };
    for (int round = 0; round < 120; ++round) {
      const size_t count = kBytes[sizes() % std::size(kBytes)] / sizeof(float);
      std::vector<float> in = input(comm.rank(), round, count), out(count);
      Operation op = slow;
      op.count = count;
      op.send_buffer = in.data();
      op.recv_buffer = round % 3 == 0 ? in.data() : out.data();
      comm.submit(op).wait();
      ASSERT_EQ(first_wrong(round % 3 == 0 ? in.data() : out.data(), comm.size(), round, count), count) << "round " << round;
    }
  });
}

// Who has its buffers in memory that the others map does not copy them; then nobody's copy is used.
TEST_P(Early, RanksWithAndWithoutSharedBuffers) {
  run([](Communicator& comm) {
    constexpr size_t kCount = 5000;
    auto shared = static_cast<float*>(Communicator::allocate_shared(2 * kCount * sizeof(float)));
    std::vector<float> own(2 * kCount);
    for (int round = 0; round < 12; ++round) {
      // All private, the first rank's shared, all but the first one's, all shared; out of place and in place.
      const bool shares = round % 4 == 3 || (round % 4 == 1 && comm.rank() == 0) || (round % 4 == 2 && comm.rank() != 0);
      float* in = shares ? shared : own.data();
      float* out = round % 2 == 0 ? in + kCount : in;
      std::vector<float> mine = input(comm.rank(), round, kCount);
      std::copy(mine.begin(), mine.end(), in);
      comm.submit(allreduce_of(in, out, kCount)).wait();
      ASSERT_EQ(first_wrong(out, comm.size(), round, kCount), kCount) << "round " << round;
    }
    Communicator::release_shared(shared);
  });
}

// The result lies over a part of what is sent that is not this rank's own: it is read from the slot.
TEST_P(Early, ReduceScatterOverItsInput) {
  run([](Communicator& comm) {
    const size_t part = 4000, all = part * static_cast<size_t>(comm.size());
    std::vector<float> data = input(comm.rank(), 0, all);
    Operation op = make(OpKind::reduce_scatter, 0);
    op.send_buffer = data.data();
    op.recv_buffer = data.data() + part / 2;
    op.recv_counts.assign(static_cast<size_t>(comm.size()), part);
    comm.submit(op).wait();
    for (size_t i = 0; i < part; ++i) {
      ASSERT_EQ(data[part / 2 + i], total(comm.size(), 0, part * static_cast<size_t>(comm.rank()) + i)) << i;
    }
  });
}

// One block would fit a record, another needs an early slot, one is empty.
TEST_P(Early, AllgatherOfUnequalBlocks) {
  run([](Communicator& comm) {
    const auto count_of = [](int rank) { return rank == 0 ? size_t{3} : rank == 1 ? size_t{6000} : size_t{0}; };
    std::vector<float> mine = input(comm.rank(), 1, count_of(comm.rank())), gathered(6003);
    Operation op = make(OpKind::allgather, mine.size());
    op.send_buffer = mine.data();
    size_t at = 0;
    for (int rank = 0; rank < comm.size(); ++rank) {
      op.recv_blocks.push_back({gathered.data() + at, count_of(rank) * sizeof(float)});
      at += count_of(rank);
    }
    comm.submit(op).wait();
    for (int rank = 0; rank < comm.size(); ++rank) {
      const auto block = static_cast<const float*>(op.recv_blocks[static_cast<size_t>(rank)].data);
      for (size_t i = 0; i < count_of(rank); ++i) ASSERT_EQ(block[i], value(rank, 1, i)) << rank << " " << i;
    }
  });
}

// Up to 32 bytes they do not go through the reducer.
template <class T>
void check_few(Communicator& comm, DataType type) {
  for (size_t count = 1; count <= 40 / sizeof(T); ++count) {
    for (bool in_place : {false, true}) {
      std::vector<std::vector<T>> inputs;
      std::vector<const void*> sources;
      for (int rank = 0; rank < comm.size(); ++rank) {
        std::mt19937 random(static_cast<unsigned>(rank * 100) + static_cast<unsigned>(count));
        inputs.emplace_back(count);
        for (T& each : inputs.back()) each = std::normal_distribution<T>()(random) * std::exp2(static_cast<T>(random() % 20));
      }
      for (const auto& each : inputs) sources.push_back(each.data());
      std::vector<T> expected(count), mine = inputs[static_cast<size_t>(comm.rank())], out(count);
      reduce_reference(type, Reduction::sum, comm.size(), sources, expected.data(), count, Stage::whole);
      Operation op = make(OpKind::allreduce, count);
      op.type = type;
      op.send_buffer = mine.data();
      op.recv_buffer = in_place ? mine.data() : out.data();
      comm.submit(op).wait();
      ASSERT_EQ(in_place ? mine : out, expected) << count << (in_place ? " in place" : "");
    }
  }
}

TEST_P(Early, SumsOfAFewHaveTheReducersBits) {
  run([](Communicator& comm) {
    check_few<float>(comm, DataType::float32);
    check_few<double>(comm, DataType::float64);
  });
}

// Without operations that are direct only: those never copy.
INSTANTIATE_TEST_SUITE_P(Worlds, Early,
                         testing::Values(World{2, Wiring::staged}, World{3, Wiring::staged}, World{2, Wiring::slots}, World{3, Wiring::slots},
                                         World{2, Wiring::measured}, World{2, Wiring::threads}),
                         testing::PrintToStringParamName());

}  // namespace
}  // namespace trireme::ccl
