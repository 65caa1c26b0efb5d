#include "scoreboard.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstring>
#include <stdexcept>
#include <system_error>

namespace trireme::bench {

// A file of zeros is a board on which nobody has arrived yet.
struct Scoreboard::Board {
  alignas(64) std::atomic<int> arrived;
  alignas(64) std::atomic<uint32_t> generation;
  alignas(64) std::atomic<int> sleepers;
  alignas(64) unsigned char bulletin[kBulletinBytes];
  alignas(64) double times[kMaxRanks][kMaxTimes];
};

namespace {

void futex(std::atomic<uint32_t>& word, int operation, uint32_t value) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), operation, value, nullptr, nullptr, 0);
}

// About 100 us of spinning, well over the skew of ranks that each have a core. More ranks than cores sleep at once: a
// spinning rank would keep the one it waits for from running.
int spins_for(int ranks) {
  cpu_set_t cores;
  if (sched_getaffinity(0, sizeof cores, &cores) != 0) return 0;
  return ranks <= CPU_COUNT(&cores) ? 2000 : 0;
}

}  // namespace

Scoreboard::Scoreboard(const std::string& path, int rank, int size) : rank_(rank), size_(size), spins_(spins_for(size)) {
  if (size > kMaxRanks) throw std::invalid_argument("at most " + std::to_string(kMaxRanks) + " ranks");
  const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
  // Every rank sets the same length, so none has to be first.
  if (fd < 0 || ftruncate(fd, sizeof(Board)) != 0) throw std::system_error(errno, std::generic_category(), path);
  void* memory = mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (memory == MAP_FAILED) throw std::system_error(errno, std::generic_category(), "mmap " + path);
  board_ = static_cast<Board*>(memory);
}

Scoreboard::~Scoreboard() { munmap(board_, sizeof(Board)); }

void Scoreboard::barrier() {
  const uint32_t generation = board_->generation.load();
  if (board_->arrived.fetch_add(1) + 1 == size_) {
    board_->arrived.store(0);
    board_->generation.store(generation + 1);
    // The system call would let the last rank start its clock later than the others: only where somebody sleeps.
    if (board_->sleepers.load() > 0) futex(board_->generation, FUTEX_WAKE, INT_MAX);
    return;
  }
  for (int i = 0; i < spins_; i++) {
    if (board_->generation.load() != generation) return;
    __builtin_ia32_pause();
  }
  board_->sleepers.fetch_add(1);
  while (board_->generation.load() == generation) futex(board_->generation, FUTEX_WAIT, generation);
  board_->sleepers.fetch_sub(1);
}

void Scoreboard::broadcast(void* data, size_t bytes) {
  if (bytes > kBulletinBytes) throw std::invalid_argument("the bulletin holds " + std::to_string(kBulletinBytes) + " bytes");
  if (rank_ == 0) std::memcpy(board_->bulletin, data, bytes);
  barrier();
  std::memcpy(data, board_->bulletin, bytes);
  barrier();  // nobody writes the next one before all have read this one
}

std::vector<double> Scoreboard::max_over_ranks(const std::vector<double>& mine) {
  if (mine.size() > kMaxTimes) throw std::invalid_argument("the board holds " + std::to_string(kMaxTimes) + " times");
  std::copy(mine.begin(), mine.end(), board_->times[rank_]);
  barrier();
  std::vector<double> largest = mine;
  for (int rank = 0; rank < size_; rank++) {
    for (size_t i = 0; i < mine.size(); i++) largest[i] = std::max(largest[i], board_->times[rank][i]);
  }
  barrier();
  return largest;
}

}  // namespace trireme::bench
