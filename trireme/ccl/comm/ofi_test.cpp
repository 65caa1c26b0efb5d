// A communicator whose large messages between hosts travel through libfabric, over the providers that run on any machine.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>

#include "trireme/base/error.h"
#include "trireme/ccl/comm/test_worlds.h"
#include "trireme/ccl/fabric/ofi/ofi_lane.h"

namespace trireme::ccl {
namespace {

// Below and above the size from which messages take the lane, in place; and with one rank, or more, on each host.
void expect_right_results(Wiring wiring) {
  on_world(3, wiring, [&](Communicator& comm) {
    EXPECT_NE(comm.describe().find("ofi ("), std::string::npos) << comm.describe();
    for (size_t count : {size_t{10}, size_t{1000003}}) {
      SCOPED_TRACE(count);
      std::vector<float> data(count);
      for (size_t i = 0; i < count; ++i) data[i] = static_cast<float>(comm.rank() + 1 + static_cast<int>(i % 7));
      Operation sum = make(OpKind::allreduce, count);
      sum.send_buffer = sum.recv_buffer = data.data();
      comm.submit(std::move(sum)).wait();
      size_t wrong = 0;
      for (size_t i = 0; i < count; ++i) wrong += data[i] != static_cast<float>(6 + 3 * static_cast<int>(i % 7));
      EXPECT_EQ(wrong, 0u);

      for (float& value : data) value = static_cast<float>(comm.rank());
      Operation from_last = make(OpKind::broadcast, count);
      from_last.root = 2;
      from_last.send_buffer = from_last.recv_buffer = data.data();
      comm.submit(std::move(from_last)).wait();
      wrong = 0;
      for (float value : data) wrong += value != 2.0f;
      EXPECT_EQ(wrong, 0u);

      std::vector<float> all(3 * count);
      Operation gather = make(OpKind::allgather, count);
      for (float& value : data) value = static_cast<float>(comm.rank());
      gather.send_buffer = data.data();
      for (size_t rank = 0; rank < 3; ++rank) gather.recv_blocks.push_back({all.data() + rank * count, count * sizeof(float)});
      comm.submit(std::move(gather)).wait();
      wrong = 0;
      for (size_t i = 0; i < all.size(); ++i) wrong += all[i] != static_cast<float>(i / count);
      EXPECT_EQ(wrong, 0u);
    }
  });
}

constexpr int kNotHere = 77;

class Ofi : public testing::TestWithParam<const char*> {};

// libfabric reads FI_PROVIDER once in a process, so each has its own. The status that it ended with.
int in_child(const char* provider, const std::function<void()>& body) {
  pid_t child = fork();
  if (child == 0) {
    setenv("FI_PROVIDER", provider, 1);
    body();
    std::fflush(nullptr);
    _exit(testing::Test::HasFailure() ? 1 : 0);
  }
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// Ends the child where this provider is not to be had.
void need_provider() {
  try {
    ofi_providers();
  } catch (const Unsupported& error) {
    std::printf("%s\n", error.what());
    std::fflush(nullptr);
    _exit(kNotHere);
  }
}

TEST_P(Ofi, CollectivesBetweenHosts) {
  int status = in_child(GetParam(), [] {
    setenv("TRIREME_FABRIC", "ofi", 1);
    need_provider();
    expect_right_results(Wiring::all_apart);
    expect_right_results(Wiring::two_hosts);
  });
  if (status == kNotHere) GTEST_SKIP() << "libfabric has no " << GetParam() << " here";
  EXPECT_EQ(status, 0);
}

INSTANTIATE_TEST_SUITE_P(Providers, Ofi, testing::Values("net", "tcp;ofi_rxm"));

void expect_carrier(const std::string& name) {
  on_world(2, Wiring::all_apart, [&](Communicator& comm) {
    EXPECT_NE(comm.describe().find(name), std::string::npos) << comm.describe();
    float one = 1, sum = 0;
    Operation op = make(OpKind::allreduce, 1);
    op.send_buffer = &one;
    op.recv_buffer = &sum;
    comm.submit(op).wait();
    EXPECT_EQ(sum, 2.0f);
  });
}

TEST(AtlTransport, IsLibfabricWhereNothingElseIsSaid) {
  int status = in_child("net", [] {
    need_provider();
    setenv("CCL_ATL_TRANSPORT", "ofi", 1);
    expect_carrier("ofi (");
    setenv("TRIREME_FABRIC", "tcp", 1);
    expect_carrier("tcp (");
    unsetenv("TRIREME_FABRIC");
    setenv("CCL_ATL_TRANSPORT", "mpi", 1);
    expect_carrier("tcp (");
  });
  if (status == kNotHere) GTEST_SKIP() << "libfabric has no net here";
  EXPECT_EQ(status, 0);
}

TEST(AtlTransport, IsAWishOnly) {
  EXPECT_EQ(in_child("no-such-provider", [] {
    setenv("CCL_ATL_TRANSPORT", "ofi", 1);
    expect_carrier("tcp (");
  }), 0);
}

}  // namespace
}  // namespace trireme::ccl
