// Reading and writing the memory of the other ranks of this host.
//
// Three ways, by what is permitted: the ranks are threads (plain pointers); the buffer lies in a shared region (mapped once, then
// plain pointers); process_vm_readv and _writev, used only when a nonce in the peer's memory was read right.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "trireme/ccl/node/local_socket.h"
#include "trireme/ccl/node/segment.h"
#include "trireme/ccl/node/shared_heap.h"

namespace trireme::ccl {

struct LocalPeer {
  int global_rank = 0;
  pid_t pid = 0;
  std::string socket_name;
  uint64_t region_token = 0;  // comes with its regions' descriptors: where pids are invisible, strangers have the same one, 0
};

// Owns the mappings of peers' regions. One thread at a time. After an exception the communicator is dead.
class PeerMemory {
 public:
  enum class Access { same_process, direct, regions_only };
  PeerMemory(Access access, int me, std::vector<LocalPeer> peers, LocalSocket socket);
  PeerMemory(PeerMemory&&) noexcept = default;
  ~PeerMemory();

  Access access() const { return access_; }

  // How peers can reach [data, data + bytes). Hands them the region's descriptor where it is one they have not got.
  View view_of(const void* data, size_t bytes);
  // Lets go of the regions that their owners have released; an owner does not release what an operation uses.
  void unmap_freed();
  // Whether peers can reach a view of this rank at all.
  bool reachable(const View& view) const { return access_ != Access::regions_only || view.region != 0; }

  // A pointer to the peer's memory, or null where it can only be copied.
  std::byte* map(int peer, const View& view, size_t offset);
  void read(int peer, const View& view, size_t offset, void* data, size_t bytes);
  void write(int peer, const View& view, size_t offset, const void* data, size_t bytes);
  // A pointer to the bytes: the peer's own memory, or `tile` after copying them there.
  const std::byte* fetch(int peer, const View& view, size_t offset, size_t bytes, std::byte* tile);

 private:
  struct Mapping {
    std::byte* base = nullptr;
    size_t bytes = 0;
  };
  struct HandedOut {
    std::weak_ptr<SharedRegion> region;
    std::vector<bool> to;  // by peer
  };
  bool hand_out(const std::shared_ptr<SharedRegion>& region);
  std::byte* region_of(int peer, uint32_t region);
  void take_message(const LocalMessage& message);

  Access access_;
  int me_;
  std::vector<LocalPeer> peers_;
  LocalSocket socket_;
  std::map<uint32_t, HandedOut> handed_out_;              // by region
  std::map<std::pair<int, uint32_t>, Mapping> mappings_;  // by peer and region
};

// Whether process_vm_readv from `pid` at `address` yields `expected`.
bool direct_read_works(pid_t pid, uint64_t address, uint64_t expected);

}  // namespace trireme::ccl
