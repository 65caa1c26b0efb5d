// CCL_ALLREDUCE and its siblings: each changes what the library does, only in its range, and never the result.
#include <chrono>

#include "trireme/base/error.h"
#include "trireme/ccl/comm/test_world.h"

namespace trireme::ccl {
namespace {

using std::chrono::milliseconds;

struct Setting {
  const char* variable;
  const char* value;
  OpKind kind;
  size_t count;  // float32, per rank
  bool by_messages;
};

std::ostream& operator<<(std::ostream& out, const Setting& setting) {
  return out << setting.variable << "=" << setting.value << ", " << setting.count << " elements";
}

float value(int rank, size_t i) { return static_cast<float>(rank * 7 + static_cast<int>(i % 13) + 1); }

// One operation of a rank with buffers of its own, and the result that its definition gives.
class Call {
 public:
  Call(OpKind kind, size_t count, int rank, int size) : count_(count), rank_(rank), size_(size) {
    in_.resize(count * static_cast<size_t>(size));
    out_.resize(in_.size());
    for (size_t i = 0; i < in_.size(); ++i) in_[i] = value(rank, i);
    op_.kind = kind;
    op_.type = DataType::float32;
    op_.count = count;
    op_.send_buffer = in_.data();
    op_.recv_buffer = out_.data();
    if (kind == OpKind::broadcast || kind == OpKind::reduce) op_.root = size - 1;
    if (kind == OpKind::reduce_scatter) op_.recv_counts.assign(static_cast<size_t>(size), count);
    if (kind == OpKind::allgather || kind == OpKind::alltoall) op_.recv_blocks = blocks(out_);
    if (kind == OpKind::alltoall) op_.send_blocks = blocks(in_);
  }

  Operation& operation() { return op_; }

  void check() const {
    size_t parts = op_.kind == OpKind::allgather || op_.kind == OpKind::alltoall ? static_cast<size_t>(size_) : 1;
    if (op_.kind == OpKind::barrier || (op_.kind == OpKind::reduce && rank_ != op_.root)) return;
    for (size_t i = 0; i < count_ * parts; ++i) ASSERT_EQ(out_[i], expected(i)) << "rank " << rank_ << ", element " << i;
  }

 private:
  std::vector<Block> blocks(std::vector<float>& data) const {
    std::vector<Block> list;
    for (int rank = 0; rank < size_; ++rank) list.push_back({data.data() + static_cast<size_t>(rank) * count_, count_ * sizeof(float)});
    return list;
  }
  float expected(size_t i) const {
    size_t mine = static_cast<size_t>(rank_) * count_;
    int owner = static_cast<int>(i / count_);
    if (op_.kind == OpKind::broadcast) return value(op_.root, i);
    if (op_.kind == OpKind::allgather) return value(owner, i % count_);
    if (op_.kind == OpKind::alltoall) return value(owner, mine + i % count_);
    float sum = 0;
    for (int rank = 0; rank < size_; ++rank) sum += value(rank, op_.kind == OpKind::reduce_scatter ? mine + i : i);
    return sum;
  }

  size_t count_;
  int rank_, size_;
  std::vector<float> in_, out_;
  Operation op_;
};

// What the rank waits for while the other has not come.
std::string wait_of(Communicator& comm, Request& request) {
  for (int look = 0; look < 200; ++look) {
    EXPECT_FALSE(request.wait_until(Deadline::after(milliseconds(60))));
    std::string report = comm.report();
    if (report.find("waiting for") != std::string::npos) return report;
  }
  return "nothing for 12 s";
}

class ChoiceByHand : public testing::TestWithParam<Setting> {};

TEST_P(ChoiceByHand, ActsInItsRange) {
  const Setting& setting = GetParam();
  ScopedEnv chosen(setting.variable, setting.value);
  auto world = make_world(2, Wiring::threads);
  Call late(setting.kind, setting.count, 1, 2), early(setting.kind, setting.count, 0, 2);
  Request first = world[0]->submit(early.operation());
  // A small reduce in shared memory ends at once where the root is another.
  std::string wait = first.wait_until(Deadline::after(milliseconds(20))) ? "nothing" : wait_of(*world[0], first);
  EXPECT_EQ(wait.find("a message") != std::string::npos, setting.by_messages) << wait;
  Request second = world[1]->submit(late.operation());
  second.wait();
  first.wait();
  early.check();
  late.check();
}

// The waiting rank is 0, the root is 1.
INSTANTIATE_TEST_SUITE_P(Settings, ChoiceByHand,
                         testing::Values(Setting{"CCL_ALLREDUCE", "", OpKind::allreduce, 50000, false},
                                         Setting{"CCL_ALLREDUCE", "ring", OpKind::allreduce, 50000, true},
                                         Setting{"CCL_ALLREDUCE", "ring:0-1000", OpKind::allreduce, 50000, false},
                                         Setting{"CCL_ALLREDUCE", "rabenseifner", OpKind::allreduce, 50000, false},
                                         Setting{"CCL_ALLGATHER", "", OpKind::allgather, 5000, false},
                                         Setting{"CCL_ALLGATHER", "flat", OpKind::allgather, 5000, true},
                                         Setting{"CCL_ALLGATHERV", "multi_bcast:100-max", OpKind::allgather, 10, false},
                                         Setting{"CCL_ALLGATHERV", "multi_bcast:100-max", OpKind::allgather, 100, true},
                                         Setting{"CCL_BCAST", "", OpKind::broadcast, 10, false},
                                         Setting{"CCL_BCAST", "flat", OpKind::broadcast, 10, true},
                                         Setting{"CCL_BROADCAST", "naive:4000-max", OpKind::broadcast, 999, false},
                                         Setting{"CCL_BROADCAST", "naive:4000-max", OpKind::broadcast, 1000, true},
                                         Setting{"CCL_REDUCE", "tree", OpKind::reduce, 50000, false},
                                         Setting{"CCL_REDUCE", "flat", OpKind::reduce, 10, true},
                                         Setting{"CCL_REDUCE", "flat", OpKind::reduce, 50000, true},
                                         Setting{"CCL_REDUCE", "hierarchical;ring:4000-max", OpKind::reduce, 10, false},
                                         Setting{"CCL_REDUCE", "hierarchical;ring:4000-max", OpKind::reduce, 50000, true},
                                         Setting{"CCL_REDUCE_SCATTER", "", OpKind::reduce_scatter, 10000, false},
                                         Setting{"CCL_REDUCE_SCATTER", "naive", OpKind::reduce_scatter, 10000, true},
                                         Setting{"CCL_REDUCE_SCATTER", "ring:0-80", OpKind::reduce_scatter, 10, true},
                                         Setting{"CCL_REDUCE_SCATTER", "ring:0-80", OpKind::reduce_scatter, 11, false}));

// Alltoall meets before it chooses, for no rank knows all sizes. Which way it went is told by who finds that counts disagree: the ranks
// that read each other name the operation, the messages do not.
TEST(AlltoallByHand, ActsInItsRange) {
  struct Case {
    const char* variable;
    const char* value;
    size_t count;
    bool by_messages;
  };
  for (Case it : {Case{"CCL_ALLTOALL", "", 100, false}, Case{"CCL_ALLTOALL", "flat", 100, true}, Case{"CCL_ALLTOALL", "flat", 20000, true},
                  Case{"CCL_ALLTOALL", "naive:400-max", 99, false}, Case{"CCL_ALLTOALLV", "naive:400-max", 100, true},
                  Case{"CCL_ALLTOALLV", "scatter:0-79999", 20000, false}, Case{"CCL_ALLTOALLV", "scatter:0-80000", 20000, true},
                  Case{"CCL_ALLTOALL", "direct", 20000, false}}) {
    ScopedEnv chosen(it.variable, it.value);
    on_world(3, Wiring::processes, [&](Communicator& comm) {
      Call call(OpKind::alltoall, it.count, comm.rank(), comm.size());
      // Rank 1 has a smaller block for rank 2 than that one expects; the largest of all is still it.count.
      if (comm.rank() == 1) call.operation().send_blocks[2].bytes -= 4;
      try {
        comm.submit(call.operation()).wait();
        comm.submit(Operation{}).wait();  // this rank had no part in the quarrel; the barrier hears of it
        ADD_FAILURE() << "nobody noticed";
      } catch (const Mismatch& error) {
        std::string text = error.what();
        EXPECT_EQ(text.find("alltoall of") == std::string::npos, it.by_messages) << it.value << " " << it.count << ": " << text;
      }
    });
  }
}

// Every setting gives the same answer over every wiring, around the inline limit and above.
class ChoicesAgree : public testing::TestWithParam<Wiring> {};

TEST_P(ChoicesAgree, WithTheDefinition) {
  for (const char* value : {"hierarchical", "flat", "ring"}) {
    std::vector<std::unique_ptr<ScopedEnv>> chosen;
    for (const char* name : {"ALLREDUCE", "ALLGATHER", "ALLTOALL", "BARRIER", "BCAST", "REDUCE", "REDUCE_SCATTER"}) {
      chosen.push_back(std::make_unique<ScopedEnv>(std::string("CCL_") + name, value));
    }
    on_world(4, GetParam(), [&](Communicator& comm) {
      for (size_t count : {size_t{1}, size_t{500}, size_t{30001}}) {
        for (OpKind kind : {OpKind::allreduce, OpKind::reduce, OpKind::broadcast, OpKind::allgather, OpKind::alltoall,
                            OpKind::reduce_scatter, OpKind::barrier}) {
          SCOPED_TRACE(std::string(value) + " " + std::string(name_of(kind)) + " " + std::to_string(count));
          Call call(kind, count, comm.rank(), comm.size());
          comm.submit(call.operation()).wait();
          call.check();
        }
      }
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Wirings, ChoicesAgree,
                         testing::Values(Wiring::threads, Wiring::staged, Wiring::processes, Wiring::two_hosts, Wiring::uneven_hosts),
                         [](const auto& info) { return name_of(info.param); });

}  // namespace
}  // namespace trireme::ccl
