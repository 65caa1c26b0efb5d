#include "cases.h"

#include <array>
#include <bit>
#include <cstdint>
#include <numeric>
#include <stdexcept>

namespace trireme::bench {
namespace {

constexpr const char* kOpNames[] = {"allreduce", "reduce",         "broadcast", "allgather", "allgatherv", "alltoall",
                                    "alltoallv", "reduce_scatter", "scatter",   "gather",    "barrier",    "send_recv"};
constexpr const char* kTypeNames[] = {"fp32", "bf16"};

template <typename Enum, size_t N>
Enum from_name(const std::string& name, const char* const (&names)[N]) {
  for (size_t i = 0; i < N; i++) {
    if (name == names[i]) return static_cast<Enum>(i);
  }
  throw std::invalid_argument("unknown name: " + name);
}

// Values repeat with a prime period, so that data from a wrong offset is seen, and are at most 16, so that the sum of 16
// ranks stays within the 8 significant bits of bf16.
constexpr size_t kPeriod = 17;

float value(int rank, size_t i) { return static_cast<float>((i + 5 * static_cast<size_t>(rank)) % kPeriod); }

// One period of what must arrive.
std::array<float, kPeriod> expected_values(const Piece& piece, int size) {
  std::array<float, kPeriod> values{};
  for (size_t i = 0; i < kPeriod; i++) {
    for (int rank = 0; rank < size; rank++) {
      if (piece.source == Piece::kSum || piece.source == rank) values[i] += value(rank, piece.from + i);
    }
  }
  return values;
}

void store(void* buffer, Type type, size_t i, float x) {
  if (type == Type::fp32) {
    static_cast<float*>(buffer)[i] = x;
  } else {
    static_cast<uint16_t*>(buffer)[i] = static_cast<uint16_t>(std::bit_cast<uint32_t>(x) >> 16);  // exact for these values
  }
}

float load(const void* buffer, Type type, size_t i) {
  if (type == Type::fp32) return static_cast<const float*>(buffer)[i];
  return std::bit_cast<float>(uint32_t{static_cast<const uint16_t*>(buffer)[i]} << 16);
}

// What rank `from` gives to rank `to`, where the v forms give unequal shares.
size_t share(const Case& c, int from, int to) {
  const size_t count = c.count();
  if (c.op == Op::allgatherv) return from % 2 == 0 ? count + count / 4 : count - count / 4;
  if (c.op == Op::alltoallv) return (from + to) % 2 == 0 ? count + count / 4 : count - count / 4;
  return count;
}

std::vector<size_t> shares_from(const Case& c, int rank, int size) {
  std::vector<size_t> counts;
  for (int to = 0; to < size; to++) counts.push_back(share(c, rank, to));
  return counts;
}

std::vector<size_t> shares_to(const Case& c, int rank, int size) {
  std::vector<size_t> counts;
  for (int from = 0; from < size; from++) counts.push_back(share(c, from, rank));
  return counts;
}

size_t sum(const std::vector<size_t>& counts) { return std::accumulate(counts.begin(), counts.end(), size_t{0}); }

Layout reduction(const Case& c, bool receives) {
  Layout layout;
  layout.send_count = layout.recv_count = c.count();
  if (receives) layout.result = {{Piece::kSum, 0, 0, c.count()}};
  return layout;
}

Layout reduce_scatter(const Case& c, int rank, int size) {
  Layout layout;
  layout.recv_count = c.count() / size;
  layout.send_count = layout.recv_count * size;
  layout.recv_offset_in_place = layout.recv_count * rank;
  layout.result = {{Piece::kSum, layout.recv_count * rank, 0, layout.recv_count}};
  return layout;
}

Layout allgather(const Case& c, int rank, int size) {
  Layout layout;
  layout.send_count = share(c, rank, 0);
  layout.recv_counts = shares_to(c, rank, size);
  layout.recv_count = sum(layout.recv_counts);
  const auto offsets = offsets_of(layout.recv_counts);
  layout.send_offset_in_place = offsets[rank];
  for (int from = 0; from < size; from++) layout.result.push_back({from, 0, offsets[from], layout.recv_counts[from]});
  return layout;
}

Layout exchange(const Case& c, int rank, int size) {
  Layout layout;
  layout.send_counts = shares_from(c, rank, size);
  layout.recv_counts = shares_to(c, rank, size);
  layout.send_count = sum(layout.send_counts);
  layout.recv_count = sum(layout.recv_counts);
  const auto offsets = offsets_of(layout.recv_counts);
  for (int from = 0; from < size; from++) {
    const size_t mine = offsets_of(shares_from(c, from, size))[rank];
    layout.result.push_back({from, mine, offsets[from], layout.recv_counts[from]});
  }
  return layout;
}

Layout scatter(const Case& c, int rank, int size) {
  Layout layout;
  layout.send_counts = shares_from(c, kRoot, size);
  layout.send_count = rank == kRoot ? sum(layout.send_counts) : 0;
  layout.recv_count = c.count();
  layout.result = {{kRoot, c.count() * rank, 0, c.count()}};
  return layout;
}

Layout gather(const Case& c, int rank, int size) {
  Layout layout = allgather(c, rank, size);
  if (rank == kRoot) return layout;
  layout.recv_count = layout.send_offset_in_place = 0;
  layout.result.clear();
  return layout;
}

Layout broadcast(const Case& c) {
  Layout layout;
  layout.send_count = layout.recv_count = c.count();
  layout.result = {{kRoot, 0, 0, c.count()}};
  return layout;
}

// Ranks 0 and 1 swap a message, the others look on.
Layout send_recv(const Case& c, int rank) {
  Layout layout;
  if (rank > 1) return layout;
  layout.send_count = layout.recv_count = c.count();
  layout.result = {{1 - rank, 0, 0, c.count()}};
  return layout;
}

}  // namespace

Op op_from(const std::string& name) { return from_name<Op>(name, kOpNames); }
Type type_from(const std::string& name) { return from_name<Type>(name, kTypeNames); }
const char* name_of(Op op) { return kOpNames[static_cast<int>(op)]; }
const char* name_of(Type type) { return kTypeNames[static_cast<int>(type)]; }
size_t size_of(Type type) { return type == Type::fp32 ? 4 : 2; }
bool reduces(Op op) { return op == Op::allreduce || op == Op::reduce || op == Op::reduce_scatter; }

bool is_defined(const Case& c, int size) {
  if (c.op == Op::barrier || c.op == Op::send_recv) return !c.in_place;
  return c.op != Op::reduce_scatter || c.count() >= static_cast<size_t>(size);
}

Layout layout_of(const Case& c, int rank, int size) {
  switch (c.op) {
    case Op::allreduce:
      return reduction(c, true);
    case Op::reduce:
      return reduction(c, rank == kRoot);
    case Op::broadcast:
      return broadcast(c);
    case Op::allgather:
    case Op::allgatherv:
      return allgather(c, rank, size);
    case Op::alltoall:
    case Op::alltoallv:
      return exchange(c, rank, size);
    case Op::reduce_scatter:
      return reduce_scatter(c, rank, size);
    case Op::scatter:
      return scatter(c, rank, size);
    case Op::gather:
      return gather(c, rank, size);
    case Op::send_recv:
      return send_recv(c, rank);
    case Op::barrier:
      return {};
  }
  throw std::invalid_argument("unknown operation");
}

std::vector<size_t> offsets_of(const std::vector<size_t>& counts) {
  std::vector<size_t> offsets(counts.size());
  std::exclusive_scan(counts.begin(), counts.end(), offsets.begin(), size_t{0});
  return offsets;
}

void fill(void* send, Type type, size_t count, int rank) {
  for (size_t i = 0; i < count; i++) store(send, type, i, value(rank, i));
}

std::string find_error(const void* recv, Type type, const std::vector<Piece>& expected, int size) {
  for (const Piece& piece : expected) {
    const auto values = expected_values(piece, size);
    for (size_t i = 0; i < piece.count; i++) {
      const float want = values[i % kPeriod];
      const float got = load(recv, type, piece.to + i);
      if (got != want) {
        return "element " + std::to_string(piece.to + i) + " is " + std::to_string(got) + ", not " + std::to_string(want);
      }
    }
  }
  return {};
}

}  // namespace trireme::bench
