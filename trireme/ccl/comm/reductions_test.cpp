// What reductions compute: every type and reduction against the reference, a program's own, and how exact bf16 sums are.
#include <algorithm>
#include <cmath>
#include <random>

#include "trireme/base/error.h"
#include "trireme/base/float16.h"
#include "trireme/ccl/comm/test_worlds.h"
#include "trireme/ccl/reduction/reducer.h"

namespace trireme::ccl {
namespace {

class Reductions : public OnWorlds {};

TEST_P(Reductions, EveryTypeAndReduction) {
  run([](Communicator& comm) {
    for (int t = 0; t < kDataTypes; ++t) {
      for (int r = 0; r < kReductions - 1; ++r) {
        auto type = static_cast<DataType>(t);
        auto reduction = static_cast<Reduction>(r);
        try {
          Reducer(type, reduction, comm.size());
        } catch (const InvalidArgument&) {
          continue;
        }
        for (size_t count : {size_t{33}, size_t{9001}}) {
          size_t bytes = count * size_of(type);
          auto fill = [&](int rank) {
            std::vector<std::byte> data(bytes);
            for (size_t i = 0; i < count; ++i) {
              int number = static_cast<int>((i * 7 + static_cast<size_t>(rank) * 3) % 5) + 1;
              std::byte* at = data.data() + i * size_of(type);
              if (type == DataType::float16) *reinterpret_cast<uint16_t*>(at) = to_float16(static_cast<float>(number) / 3).bits;
              else if (type == DataType::bfloat16) *reinterpret_cast<uint16_t*>(at) = to_bfloat16(static_cast<float>(number) / 3).bits;
              else if (type == DataType::float32) *reinterpret_cast<float*>(at) = static_cast<float>(number) / 3;
              else if (type == DataType::float64) *reinterpret_cast<double*>(at) = static_cast<double>(number) / 3;
              else if (type == DataType::boolean) *at = static_cast<std::byte>(number % 2);
              else *at = static_cast<std::byte>(number);
            }
            return data;
          };
          std::vector<std::vector<std::byte>> inputs;
          std::vector<const void*> sources;
          for (int rank = 0; rank < comm.size(); ++rank) inputs.push_back(fill(rank));
          for (auto& in : inputs) sources.push_back(in.data());
          std::vector<std::byte> expected(bytes), out(bytes);
          Operation op;
          op.kind = OpKind::allreduce;
          op.type = type;
          op.reduction = reduction;
          op.count = count;
          op.send_buffer = inputs[comm.rank()].data();
          op.recv_buffer = out.data();
          comm.submit(op).wait();
          reduce_reference(type, reduction, comm.size(), sources, expected.data(), count, Stage::whole);
          // In one host the order is that of the reference; between hosts sums are grouped by host, so floating point may differ in the last bits:
          // then all ranks must still agree.
          bool floating = t >= static_cast<int>(DataType::float16) && t <= static_cast<int>(DataType::float64);
          int hosts = *std::max_element(comm.hosts().begin(), comm.hosts().end()) + 1;
          bool grouped = hosts != 1 && hosts != comm.size();
          if (!floating || !grouped) {
            ASSERT_EQ(out, expected) << name_of(type) << " " << name_of(reduction) << " " << count;
          }
          std::vector<std::byte> first = out;
          Operation check;
          check.kind = OpKind::broadcast;
          check.count = bytes;
          check.root = 0;
          check.send_buffer = check.recv_buffer = first.data();
          comm.submit(check).wait();
          ASSERT_EQ(out, first) << name_of(type) << " " << name_of(reduction) << ": ranks differ";
        }
      }
    }
  });
}

TEST_P(Reductions, CustomReduction) {
  run([](Communicator& comm) {
    for (size_t count : {size_t{10}, size_t{30000}}) {
      std::vector<int64_t> in(count, comm.rank() + 2), out(count);
      Operation op;
      op.kind = OpKind::allreduce;
      op.type = DataType::int64;
      op.reduction = Reduction::custom;
      op.custom = [](const void* from, void* into, size_t n, DataType) {
        for (size_t i = 0; i < n; ++i) static_cast<int64_t*>(into)[i] *= static_cast<const int64_t*>(from)[i];
      };
      op.count = count;
      op.send_buffer = in.data();
      op.recv_buffer = out.data();
      comm.submit(op).wait();
      int64_t expected = 1;
      for (int rank = 0; rank < comm.size(); ++rank) expected *= rank + 2;
      EXPECT_EQ(out, std::vector<int64_t>(count, expected));
    }
  });
}

// Random data of many magnitudes, and data of which almost everything cancels: what is left of a pair of ranks is a thousandth.
bfloat16 spread(int rank, size_t i) {
  std::minstd_rand random(static_cast<unsigned>(i * 1000003 + static_cast<size_t>(rank) + 1));
  random.discard(2);
  auto bits = static_cast<int>(random());
  return to_bfloat16(std::ldexp(static_cast<float>((bits >> 5) - (1 << 25)), bits % 17 - 34));
}
bfloat16 cancelling(int rank, size_t i) {
  float large = to_float(spread(rank / 2, i));
  return to_bfloat16(rank % 2 == 0 ? large : -large * (1 - 0.001f * static_cast<float>(i % 7)));
}

// The error of a bf16 sum S of P ranks is at most 2^-8 |S| + P 2^-24 sum |x_i|: it is accumulated in fp32 and rounded once.
void check_bfloat16_sum(Communicator& comm, OpKind kind, size_t count, bfloat16 (*at)(int rank, size_t i)) {
  bool scatter = kind == OpKind::reduce_scatter;
  size_t shares = scatter ? static_cast<size_t>(comm.size()) : 1, first = scatter ? count * static_cast<size_t>(comm.rank()) : 0;
  std::vector<bfloat16> in(count * shares), out(count), again(count);
  for (size_t i = 0; i < in.size(); ++i) in[i] = at(comm.rank(), i);
  Operation op = make(kind, scatter ? 0 : count);
  op.type = DataType::bfloat16;
  op.root = kind == OpKind::reduce ? comm.size() - 1 : -1;
  if (scatter) op.recv_counts.assign(shares, count);
  op.send_buffer = in.data();
  op.recv_buffer = out.data();
  comm.submit(op).wait();
  op.recv_buffer = again.data();
  comm.submit(op).wait();
  if (kind == OpKind::reduce && comm.rank() != op.root) return;
  for (size_t i = 0; i < count; ++i) {
    double sum = 0, magnitude = 0;
    for (int rank = 0; rank < comm.size(); ++rank) {
      double x = to_float(at(rank, first + i));
      sum += x;
      magnitude += std::abs(x);
    }
    double bound = std::ldexp(std::abs(sum), -8) + comm.size() * std::ldexp(magnitude, -24);
    ASSERT_LE(std::abs(to_float(out[i]) - sum), bound) << name_of(kind) << " of " << count << ", element " << i;
    ASSERT_EQ(out[i].bits, again[i].bits) << "repeated, the bits differ";
  }
}

TEST_P(Reductions, Bfloat16SumsAreExactAndRepeatable) {
  run([](Communicator& comm) {
    for (OpKind kind : {OpKind::allreduce, OpKind::reduce, OpKind::reduce_scatter}) {
      for (size_t count : {size_t{301}, size_t{20001}}) {
        check_bfloat16_sum(comm, kind, count, spread);
        check_bfloat16_sum(comm, kind, count, cancelling);
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Worlds, Reductions, testing::ValuesIn(worlds()), testing::PrintToStringParamName());

}  // namespace
}  // namespace trireme::ccl
