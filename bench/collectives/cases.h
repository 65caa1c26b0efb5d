// What is measured: the operations, how their buffers are laid out, and what each must leave in them.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace trireme::bench {

enum class Op {
  allreduce,
  reduce,
  broadcast,
  allgather,
  allgatherv,
  alltoall,
  alltoallv,
  reduce_scatter,
  scatter,
  gather,
  barrier,
  send_recv
};
enum class Type { fp32, bf16 };

Op op_from(const std::string& name);
Type type_from(const std::string& name);
const char* name_of(Op op);
const char* name_of(Type type);
size_t size_of(Type type);
// Reduces, rather than only moves, data.
bool reduces(Op op);

// `bytes` means what it means in the OSU micro-benchmarks: of allreduce, reduce and broadcast the buffer; of allgather one
// rank's contribution; of alltoall, scatter and gather what one rank sends to one other; of reduce_scatter the whole input; of
// send_recv the message. The v forms have the same mean, but shares of 5/4 and 3/4 of it alternate.
struct Case {
  Op op;
  Type type;
  bool in_place;
  size_t bytes;

  size_t count() const { return bytes / size_of(type); }
};

inline constexpr int kRoot = 0;

// Not every operation has an in-place form, and a reduce_scatter needs an element for each rank.
bool is_defined(const Case& c, int size);

// A stretch of a rank's result: `count` elements from `to` on are the elements from `from` on of what `source` sent, or
// their sum over all ranks.
struct Piece {
  static constexpr int kSum = -1;
  int source;
  size_t from;
  size_t to;
  size_t count;
};

// One rank's side of a case, in elements. In place, both sides lie in one buffer, at the two offsets.
struct Layout {
  size_t send_count = 0;
  size_t recv_count = 0;
  std::vector<size_t> send_counts;  // per destination: alltoall(v), scatter
  std::vector<size_t> recv_counts;  // per source: allgather(v), alltoall(v), gather
  size_t send_offset_in_place = 0;
  size_t recv_offset_in_place = 0;
  std::vector<Piece> result;
};

Layout layout_of(const Case& c, int rank, int size);

// The elements before each share.
std::vector<size_t> offsets_of(const std::vector<size_t>& counts);

// Writes what `rank` sends: small integers, so that sums over up to 16 ranks are exact in bf16 too, in whatever order.
void fill(void* send, Type type, size_t count, int rank);

// The first wrong element of `recv` as a sentence, or empty.
std::string find_error(const void* recv, Type type, const std::vector<Piece>& expected, int size);

}  // namespace trireme::bench
