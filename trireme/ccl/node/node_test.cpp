#include "trireme/ccl/node/node.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <fstream>
#include <optional>
#include <thread>

#include "trireme/base/error.h"
#include "trireme/ccl/node/huge_pages.h"
#include "trireme/ccl/node/shared_heap.h"

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

// Two ranks that hand each other shared buffers, as processes do.
struct TwoMemories {
  LocalSocket sockets[2] = {LocalSocket::open(), LocalSocket::open()};
  std::vector<LocalPeer> peers = {{4, getpid(), sockets[0].name(), 40}, {7, getpid(), sockets[1].name(), 70}};
  PeerMemory first{PeerMemory::Access::direct, 0, peers, std::move(sockets[0])};
  std::optional<PeerMemory> second{std::in_place, PeerMemory::Access::direct, 1, peers, std::move(sockets[1])};
};

int buffers_mapped() {
  std::ifstream maps("/proc/self/maps");
  int count = 0;
  for (std::string line; std::getline(maps, line);) count += line.find("memfd:trireme-buffer") != std::string::npos;
  return count;
}

TEST(SharedBuffers, GiveTheirMemoryBackWhenReleased) {
  constexpr size_t kBytes = 16 << 20;
  TwoMemories ranks;
  void* data = SharedHeap::instance().allocate(kBytes);
  std::memset(data, 1, kBytes);
  View view = ranks.first.view_of(data, kBytes);
  EXPECT_EQ(*ranks.second->map(0, view, 0), std::byte{1});
  EXPECT_EQ(buffers_mapped(), 2);

  auto region = SharedHeap::instance().find(data, kBytes);
  auto bytes_held = [&] {
    struct stat status {};
    EXPECT_EQ(fstat(region->fd.get(), &status), 0);
    return static_cast<size_t>(status.st_blocks) * 512;
  };
  EXPECT_GE(bytes_held(), kBytes);
  collapse_with_ends(data, kBytes);
  SharedHeap::instance().release(data);
  // Though a peer has it mapped. At most one huge page cannot be split.
  EXPECT_LE(bytes_held(), size_t{2} << 20);
  region.reset();
  ranks.second->unmap_freed();
  EXPECT_EQ(buffers_mapped(), 0);
}

// A child's copy of a buffer goes when the child ends in good order. The parent goes on using it.
TEST(SharedBuffers, AForkedChildReleasesOnlyItsCopy) {
  TwoMemories ranks;
  void* data = SharedHeap::instance().allocate(4096);
  std::memset(data, 1, 4096);
  View view = ranks.first.view_of(data, 4096);
  const std::byte* mapped = ranks.second->map(0, view, 0);
  pid_t child = fork();
  if (child == 0) {
    SharedHeap::instance().release(data);
    _exit(0);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  ranks.second->unmap_freed();
  EXPECT_EQ(buffers_mapped(), 2);
  EXPECT_EQ(*mapped, std::byte{1});
  SharedHeap::instance().release(data);
}

// Who needs the peer learns elsewhere that it is gone.
TEST(SharedBuffers, APeerThatIsGoneIsPassedOver) {
  TwoMemories ranks;
  void* data = SharedHeap::instance().allocate(4096);
  ranks.second.reset();
  EXPECT_NE(ranks.first.view_of(data, 4096).region, 0u);
  SharedHeap::instance().release(data);
}

// Where pids are not visible, every process's is 0: a descriptor counts only with its rank's token.
TEST(SharedBuffers, AStrangersDescriptorIsNotMapped) {
  TwoMemories ranks;
  void* data = SharedHeap::instance().allocate(4096);
  std::memset(data, 1, 4096);
  const auto region = SharedHeap::instance().find(data, 4096);
  struct {
    uint32_t from, region;
    uint64_t bytes, token;
  } forged{0, region->id, region->mapping_bytes, ranks.peers[0].region_token ^ 1};
  UniqueFd memory(memfd_create("forged", MFD_CLOEXEC));
  ASSERT_EQ(ftruncate(memory.get(), static_cast<off_t>(forged.bytes)), 0);
  const int fd = memory.get();
  LocalSocket stranger = LocalSocket::open();
  ASSERT_EQ(stranger.try_send(ranks.peers[1].socket_name, std::string(reinterpret_cast<const char*>(&forged), sizeof forged), {&fd, 1}),
            LocalSocket::Sent::yes);
  View view = ranks.first.view_of(data, 4096);
  EXPECT_EQ(*ranks.second->map(0, view, 0), std::byte{1});
  SharedHeap::instance().release(data);
}

TEST(Segment, RefusesTooLittleStagingMemoryForItsRanks) {
  EXPECT_THROW(Segment::create(2, 4096, true), InvalidArgument);
  EXPECT_THROW(Segment::create(256, 65536, true), InvalidArgument);
  EXPECT_NO_THROW(Segment::create(256, 131072, true));
}

}  // namespace
}  // namespace trireme::ccl
