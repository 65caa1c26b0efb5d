// One rank that reduces random data in every way and size, and prints a digest of the bits of each result: tests compare them between
// ranks, runs and settings. Reads RANK, WORLD_SIZE and STORE as ccl_rank does. Prints "ready", then one line per result, "KIND TYPE
// COUNT: DIGEST". The operations go round several communicators and are left to the workers, all at once. With RANKS_PER_HOST, so many
// take themselves to be on a host.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <random>
#include <thread>

#include "tests/multiprocess/meet.h"
#include "trireme/base/error.h"
#include "trireme/base/float16.h"
#include "trireme/ccl/comm/communicator.h"

namespace trireme::ccl {
namespace {

constexpr int kCommunicators = 4;
constexpr size_t kMaxBytes = 4 << 20;
// 8 bytes to 4 MiB of float32, in pairs around what has a limit somewhere; most are odd.
constexpr size_t kCounts[] = {2, 7, 8, 9, 1001, 2048, 2049, 16387, 32769, 262145, kMaxBytes / sizeof(float)};
constexpr DataType kTypes[] = {DataType::float32, DataType::bfloat16, DataType::float16};
constexpr OpKind kKinds[] = {OpKind::allreduce, OpKind::reduce, OpKind::reduce_scatter};

// Of all magnitudes and both signs, so that another order of summation shows in the bits.
std::vector<std::byte> random_data(DataType type, size_t count, uint64_t seed) {
  std::minstd_rand random(static_cast<unsigned>(seed));
  std::vector<std::byte> data(count * size_of(type));
  for (size_t i = 0; i < count; ++i) {
    auto bits = static_cast<int32_t>(random());  // 31 of them
    float value = std::ldexp(static_cast<float>((bits >> 4) - (1 << 26)), (bits & 15) - 34);
    uint16_t half = type == DataType::bfloat16 ? to_bfloat16(value).bits : to_float16(value).bits;
    std::byte* at = data.data() + i * size_of(type);
    if (type == DataType::float32) std::memcpy(at, &value, sizeof value);
    else std::memcpy(at, &half, sizeof half);
  }
  return data;
}

// FNV-1a, over pieces of two bytes: no element is smaller.
uint64_t digest(const std::vector<std::byte>& data) {
  uint64_t hash = 0xcbf29ce484222325;
  for (size_t at = 0; at < data.size(); at += 2) {
    uint16_t piece;
    std::memcpy(&piece, data.data() + at, sizeof piece);
    hash = (hash ^ piece) * 0x100000001b3;
  }
  return hash;
}

struct Reduction {
  Operation op;
  std::vector<std::byte> in, out;
  Request request;
};

void prepare(Reduction& it, OpKind kind, DataType type, size_t count, int rank, int size) {
  bool scatter = kind == OpKind::reduce_scatter;
  // The shares of a reduce_scatter differ; together they are `count`.
  std::vector<size_t> shares(static_cast<size_t>(size), count / static_cast<size_t>(size));
  shares.back() += count % static_cast<size_t>(size);
  it.in = random_data(type, count, count * 31 + static_cast<size_t>(rank));
  it.out.resize((scatter ? shares[rank] : count) * size_of(type));
  it.op.kind = kind;
  it.op.type = type;
  it.op.count = scatter ? 0 : count;
  if (scatter) it.op.recv_counts = shares;
  it.op.root = kind == OpKind::reduce ? size - 1 : -1;
  it.op.send_buffer = it.in.data();
  it.op.recv_buffer = it.out.data();
}

int run() {
  Place place = place_from_environment();
  auto store = meet(place);
  std::vector<std::shared_ptr<Communicator>> comms;
  for (int i = 0; i < kCommunicators; ++i) {
    CommunicatorOptions options;
    options.name = str("bits-", i);
    options.timeout = std::chrono::seconds(60);
    if (const char* ranks = getenv("RANKS_PER_HOST")) options.host_label = str("host ", place.rank / std::atoi(ranks));
    comms.push_back(Communicator::create(place.size, place.rank, store, options));
  }
  std::printf("ready\n");
  std::fflush(stdout);
  std::deque<Reduction> all;
  for (DataType type : kTypes) {
    for (size_t count : kCounts) {
      for (OpKind kind : kKinds) prepare(all.emplace_back(), kind, type, count, place.rank, place.size);
    }
  }
  size_t next = 0;
  for (Reduction& it : all) it.request = comms[next++ % kCommunicators]->submit(it.op);
  for (Reduction& it : all) {
    while (!it.request.finished()) std::this_thread::sleep_for(std::chrono::microseconds(200));  // not wait(): that would do the work itself
    it.request.wait();
    size_t elements = it.in.size() / size_of(it.op.type);
    bool has_result = it.op.kind != OpKind::reduce || place.rank == it.op.root;
    if (!has_result) continue;
    std::printf("%s %s %zu: %016lx\n", std::string(name_of(it.op.kind)).c_str(), std::string(name_of(it.op.type)).c_str(), elements,
                digest(it.out));
  }
  return 0;
}

}  // namespace
}  // namespace trireme::ccl

int main() { return trireme::ccl::run_and_report(trireme::ccl::run); }
