#include "trireme/ccl/node/peer_memory.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "trireme/base/error.h"
#include "trireme/ccl/node/huge_pages.h"

namespace trireme::ccl {
namespace {

struct RegionMessage {
  uint32_t from;
  uint32_t region;
  uint64_t bytes;
  uint64_t token;
};

// One call moves at most 2 GiB.
constexpr size_t kMaxCopy = size_t{1} << 30;

using VmCopy = ssize_t (*)(pid_t, const iovec*, unsigned long, const iovec*, unsigned long, unsigned long);

void vm_copy(VmCopy copy, const LocalPeer& peer, uint64_t remote, void* local, size_t bytes) {
  auto here = static_cast<std::byte*>(local);
  while (bytes != 0) {
    size_t piece = std::min(bytes, kMaxCopy);
    iovec mine{here, piece};
    iovec theirs{reinterpret_cast<void*>(remote), piece};
    ssize_t moved = copy(peer.pid, &mine, 1, &theirs, 1, 0);
    if (moved <= 0) {
      int cause = errno;
      if (moved < 0 && cause == ESRCH) throw PeerLost(peer.global_rank, str("rank ", peer.global_rank, " (pid ", peer.pid, ") is dead"));
      throw IoError(errno_message(str("copying ", piece, " bytes of rank ", peer.global_rank, "'s memory (is its buffer valid for the count?)"),
                                  moved == 0 ? EFAULT : cause));
    }
    here += moved;
    remote += static_cast<uint64_t>(moved);
    bytes -= static_cast<size_t>(moved);
  }
}

}  // namespace

bool direct_read_works(pid_t pid, uint64_t address, uint64_t expected) {
  uint64_t value = ~expected;
  iovec mine{&value, sizeof value};
  iovec theirs{reinterpret_cast<void*>(address), sizeof value};
  return process_vm_readv(pid, &mine, 1, &theirs, 1, 0) == sizeof value && value == expected;
}

PeerMemory::PeerMemory(Access access, int me, std::vector<LocalPeer> peers, LocalSocket socket)
    : access_(access), me_(me), peers_(std::move(peers)), socket_(std::move(socket)) {}

PeerMemory::~PeerMemory() {
  for (auto& [key, mapping] : mappings_) munmap(mapping.base, mapping.bytes);
}

View PeerMemory::view_of(const void* data, size_t bytes) {
  View view{reinterpret_cast<uint64_t>(data), bytes, 0, 0};
  if (access_ == Access::same_process || bytes == 0 || !socket_) return view;
  auto region = SharedHeap::instance().find(data, bytes);
  if (region && region->fd && hand_out(region)) {
    view.region = region->id;
    view.address = static_cast<uint64_t>(static_cast<const std::byte*>(data) - region->mapping);
  }
  return view;
}

// False when some peer's queue is full: the buffer then counts as private, this once.
bool PeerMemory::hand_out(const std::shared_ptr<SharedRegion>& region) {
  auto known = handed_out_.find(region->id);
  if (known == handed_out_.end()) {
    std::erase_if(handed_out_, [](const auto& entry) { return entry.second.region.expired(); });
    known = handed_out_.emplace(region->id, HandedOut{region, std::vector<bool>(peers_.size())}).first;
  }
  std::vector<bool>& has = known->second.to;
  RegionMessage message{static_cast<uint32_t>(me_), region->id, region->mapping_bytes, peers_[static_cast<size_t>(me_)].region_token};
  std::string text(reinterpret_cast<const char*>(&message), sizeof message);
  int fd = region->fd.get();
  for (size_t peer = 0; peer < peers_.size(); ++peer) {
    if (has[peer] || static_cast<int>(peer) == me_) continue;
    switch (socket_.try_send(peers_[peer].socket_name, text, {&fd, 1})) {
      case LocalSocket::Sent::yes: has[peer] = true; break;
      case LocalSocket::Sent::queue_full: return false;
      // Dead or gone: who needs it learns so from its progress and its process, and messages between the others go on.
      case LocalSocket::Sent::nobody_there: has[peer] = true; break;
    }
  }
  return true;
}

std::byte* PeerMemory::region_of(int peer, uint32_t region) {
  auto key = std::make_pair(peer, region);
  // The owner sent the descriptor before it announced the operation: it is in the queue.
  while (mappings_.find(key) == mappings_.end()) {
    auto message = socket_.receive(Deadline::after(std::chrono::seconds(10)));
    if (!message) throw IoError(str("rank ", peers_[peer].global_rank, " announced a shared buffer but never handed it over"));
    take_message(*message);
  }
  return mappings_[key].base;
}

void PeerMemory::take_message(const LocalMessage& message) {
  RegionMessage header;
  if (message.bytes.size() != sizeof header || message.fds.size() != 1) return;  // a stranger's
  std::memcpy(&header, message.bytes.data(), sizeof header);
  bool known = header.from < peers_.size() && message.sender == peers_[header.from].pid && header.token == peers_[header.from].region_token;
  struct stat status {};
  if (!known || fstat(message.fds[0].get(), &status) != 0 || static_cast<uint64_t>(status.st_size) < header.bytes) return;
  unmap_freed();
  void* memory = map_on_huge_page(header.bytes, MAP_SHARED, message.fds[0].get());
  if (memory == MAP_FAILED) throw IoError(errno_message("mapping a peer's shared buffer", errno));
  madvise(memory, header.bytes, MADV_DONTFORK);  // a child has no use for it, and would keep it after its owner's end
  mappings_[{static_cast<int>(header.from), header.region}] = {static_cast<std::byte*>(memory), header.bytes};
}

void PeerMemory::unmap_freed() {
  std::erase_if(mappings_, [](auto& entry) {
    const Mapping& mapping = entry.second;
    if (reinterpret_cast<RegionHeader*>(mapping.base)->freed.load(std::memory_order_acquire) == 0) return false;
    munmap(mapping.base, mapping.bytes);
    return true;
  });
}

std::byte* PeerMemory::map(int peer, const View& view, size_t offset) {
  if (view.region != 0 && peer != me_) return region_of(peer, view.region) + view.address + offset;
  if (access_ == Access::same_process) return reinterpret_cast<std::byte*>(view.address) + offset;
  return nullptr;
}

void PeerMemory::read(int peer, const View& view, size_t offset, void* data, size_t bytes) {
  if (bytes == 0) return;
  if (const std::byte* mapped = map(peer, view, offset)) std::memcpy(data, mapped, bytes);
  else vm_copy(process_vm_readv, peers_[peer], view.address + offset, data, bytes);
}

void PeerMemory::write(int peer, const View& view, size_t offset, const void* data, size_t bytes) {
  if (bytes == 0) return;
  if (std::byte* mapped = map(peer, view, offset)) std::memcpy(mapped, data, bytes);
  else vm_copy(process_vm_writev, peers_[peer], view.address + offset, const_cast<void*>(data), bytes);
}

const std::byte* PeerMemory::fetch(int peer, const View& view, size_t offset, size_t bytes, std::byte* tile) {
  if (const std::byte* mapped = map(peer, view, offset)) return mapped;
  vm_copy(process_vm_readv, peers_[peer], view.address + offset, tile, bytes);
  return tile;
}

}  // namespace trireme::ccl
