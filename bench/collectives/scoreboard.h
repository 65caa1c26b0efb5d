// Where the ranks of one measurement meet without the library under test: a file that all of them map. It passes the kvs
// address round, lines the ranks up before each call and collects their times.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace trireme::bench {

// Owns the mapping. One per process, one thread. barrier() and what calls it block until every rank has come; a rank that
// died leaves the others waiting, and whoever started them must end them.
class Scoreboard {
 public:
  static constexpr int kMaxRanks = 64;
  static constexpr size_t kMaxTimes = 4096;
  static constexpr size_t kBulletinBytes = 1024;

  // `path` is an empty file, new for each job, that every rank names.
  Scoreboard(const std::string& path, int rank, int size);
  ~Scoreboard();
  Scoreboard(const Scoreboard&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }

  void barrier();
  // `data` on every rank becomes what it is on rank 0.
  void broadcast(void* data, size_t bytes);
  // Element by element the largest of all ranks, on every rank.
  std::vector<double> max_over_ranks(const std::vector<double>& mine);

 private:
  struct Board;

  int rank_;
  int size_;
  int spins_;
  Board* board_;
};

}  // namespace trireme::bench
