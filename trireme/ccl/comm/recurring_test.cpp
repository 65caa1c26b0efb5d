// Large buffers that operations come back with get huge pages while the ranks go on using them: results stay right.
#include <sys/mman.h>

#include "trireme/ccl/comm/test_worlds.h"
#include "trireme/ccl/node/huge_pages.h"
#include "trireme/ccl/node/test_huge_pages.h"

namespace trireme::ccl {
namespace {

class Recurring : public OnWorlds {};

constexpr size_t kBytes = 2 * kHugePage, kCount = kBytes / sizeof(float);

// Memory of malloc's manner: it does not begin with a page.
struct Memory {
  Memory() : mapping(static_cast<std::byte*>(map_on_huge_page(kBytes + 4096, MAP_PRIVATE | MAP_ANONYMOUS, -1))), data(reinterpret_cast<float*>(mapping + 16)) {}
  ~Memory() { munmap(mapping, kBytes + 4096); }
  Memory(const Memory&) = delete;
  std::byte* mapping;
  float* data;
};

float value(int rank, int round, size_t i) { return static_cast<float>(rank * 5 + round * 3 + static_cast<int>(i % 61)); }

std::vector<Block> shares(float* data, int ranks) {
  const size_t each = kCount / static_cast<size_t>(ranks);
  std::vector<Block> blocks;
  for (int rank = 0; rank < ranks; ++rank) blocks.push_back({data + each * static_cast<size_t>(rank), each * sizeof(float)});
  return blocks;
}

TEST_P(Recurring, BuffersOfEveryOperation) {
  run([](Communicator& comm) {
    Memory in, out, probe;
    std::fill_n(probe.data, kCount, 1.0f);
    const bool available = huge_pages_wanted() && collapse(probe.mapping, kBytes);
    const int ranks = comm.size(), me = comm.rank();
    const size_t each = kCount / static_cast<size_t>(ranks), mine = each * static_cast<size_t>(me);
    for (int round = 0; round < 12; ++round) {
      for (size_t i = 0; i < kCount; ++i) in.data[i] = value(me, round, i);
      auto sum = [&](size_t i) {
        float total = 0;
        for (int rank = 0; rank < ranks; ++rank) total += value(rank, round, i);
        return total;
      };
      Operation op = make(OpKind::allreduce, kCount);
      op.send_buffer = in.data;
      op.recv_buffer = out.data;
      comm.submit(op).wait();
      for (size_t i = 0; i < kCount; i += 509) ASSERT_EQ(out.data[i], sum(i)) << "allreduce, round " << round << ", " << i;

      op = make(OpKind::reduce_scatter, 0);
      op.send_buffer = in.data;
      op.recv_buffer = out.data;
      op.recv_counts.assign(static_cast<size_t>(ranks), each);
      comm.submit(op).wait();
      for (size_t i = 0; i < each; i += 509) ASSERT_EQ(out.data[i], sum(mine + i)) << "reduce_scatter, round " << round << ", " << i;

      op = make(OpKind::alltoall, 0);
      op.send_blocks = shares(in.data, ranks);
      op.recv_blocks = shares(out.data, ranks);
      comm.submit(op).wait();
      for (size_t i = 0; i < each * static_cast<size_t>(ranks); i += 509)
        ASSERT_EQ(out.data[i], value(static_cast<int>(i / each), round, mine + i % each)) << "alltoall, round " << round << ", " << i;

      op = make(OpKind::allgather, each);
      op.send_buffer = in.data;
      op.recv_blocks = shares(out.data, ranks);
      comm.submit(op).wait();
      for (size_t i = 0; i < each * static_cast<size_t>(ranks); i += 509)
        ASSERT_EQ(out.data[i], value(static_cast<int>(i / each), round, i % each)) << "allgather, round " << round << ", " << i;
    }
    if (!available) return;
    EXPECT_EQ(huge_bytes_at(in.data), kBytes);
    EXPECT_EQ(huge_bytes_at(out.data), kBytes);
  });
}

INSTANTIATE_TEST_SUITE_P(Worlds, Recurring,
                         testing::Values(World{2, Wiring::processes}, World{2, Wiring::staged}, World{3, Wiring::threads}, World{3, Wiring::two_hosts}),
                         testing::PrintToStringParamName());

}  // namespace
}  // namespace trireme::ccl
