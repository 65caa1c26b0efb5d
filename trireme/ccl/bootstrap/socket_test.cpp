#include "trireme/ccl/bootstrap/socket.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstdlib>
#include <thread>

#include "trireme/ccl/bootstrap/control.h"

namespace trireme::ccl {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

Deadline in(int ms) { return Deadline::after(milliseconds(ms)); }

int option(int fd, int level, int name) {
  int value = -1;
  socklen_t length = sizeof value;
  ::getsockopt(fd, level, name, &value, &length);
  return value;
}

class Connected : public ::testing::Test {
 protected:
  void SetUp() override {
    listener_ = listen_on("127.0.0.1", 0);
    near_ = connect_to("127.0.0.1", local_port(listener_.get()), in(1000));
    ASSERT_TRUE(wait_ready(listener_.get(), POLLIN, in(1000)));
    far_.reset(::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  }

  UniqueFd listener_, near_, far_;
};

TEST_F(Connected, MovesMoreThanTheKernelBuffers) {
  const std::string data(8 << 20, 'x');
  std::thread sender([&] { send_all(near_.get(), data, in(10000)); });
  EXPECT_EQ(recv_string(far_.get(), data.size(), in(10000)), data);
  sender.join();
}

TEST_F(Connected, EveryWaitEndsAtItsDeadline) {
  char byte;
  EXPECT_THROW(recv_all(near_.get(), &byte, 1, in(30)), Timeout);
  EXPECT_THROW(send_all(near_.get(), std::string(64 << 20, 'x'), in(30)), Timeout);
}

TEST_F(Connected, AClosedPeerIsLost) {
  EXPECT_FALSE(is_lost(near_.get()));
  send_all(far_.get(), "last words", in(1000));
  far_.reset();
  EXPECT_TRUE(is_lost(near_.get()));
  EXPECT_EQ(recv_string(near_.get(), 10, in(1000)), "last words");
  char byte;
  EXPECT_THROW(recv_all(near_.get(), &byte, 1, in(1000)), ConnectionLost);
}

TEST_F(Connected, TheProbesEndNoEarlierThanThePeerTimeout) {
  for (int timeout_ms : {500, 2000, 2500, 15000, 60000, 1000000}) {
    tune_connection(near_.get(), milliseconds(timeout_ms));
    const int idle = option(near_.get(), IPPROTO_TCP, TCP_KEEPIDLE),
              interval = option(near_.get(), IPPROTO_TCP, TCP_KEEPINTVL);
    const int probes = option(near_.get(), IPPROTO_TCP, TCP_KEEPCNT);
    EXPECT_GE((idle + interval * probes) * 1000, timeout_ms);
    EXPECT_LE((idle + interval * probes) * 1000, timeout_ms * 5 / 4 + 2000);
    // What is sent a heartbeat after the last word, and once more 400 ms later, is given up in time.
    const int given_up = timeout_ms / 8 + 400 + option(near_.get(), IPPROTO_TCP, TCP_USER_TIMEOUT);
    EXPECT_LE(given_up, std::max(timeout_ms - 200, 1000)) << timeout_ms;
    EXPECT_GT(given_up, timeout_ms * 3 / 4) << timeout_ms;
    EXPECT_EQ(option(near_.get(), SOL_SOCKET, SO_KEEPALIVE), 1);
    EXPECT_EQ(option(near_.get(), IPPROTO_TCP, TCP_NODELAY), 1);
  }
}

// A peer that reads nothing is alive as long as its kernel answers.
TEST_F(Connected, ABulkConnectionOutlivesAClosedWindow) {
  tune_connection(near_.get(), milliseconds(500), Traffic::bulk);
  EXPECT_THROW(send_all(near_.get(), std::string(64 << 20, 'x'), in(2000)), Timeout);
  EXPECT_FALSE(is_lost(near_.get()));
}

TEST(ConnectTo, ErrorsNameAddressAndCause) {
  UniqueFd closed = listen_on("127.0.0.1", 0);
  const uint16_t port = local_port(closed.get());
  closed.reset();
  try {
    connect_to("127.0.0.1", port, in(1000));
    FAIL();
  } catch (const IoError& error) {
    EXPECT_THAT(error.what(), HasSubstr(str("127.0.0.1 port ", port)));
    EXPECT_THAT(error.what(), HasSubstr("Connection refused"));
  }
  EXPECT_THROW(connect_to("no.such.host", 1, in(1000)), InvalidArgument);
}

TEST(ListenOn, EveryAddressTakesIpv4) {
  UniqueFd listener = listen_on("", 0);
  UniqueFd connection = connect_to("127.0.0.1", local_port(listener.get()), in(1000));
  ASSERT_TRUE(wait_ready(listener.get(), POLLIN, in(1000)));
  UniqueFd accepted(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  EXPECT_EQ(local_address(accepted.get()), "127.0.0.1");
  EXPECT_EQ(peer_address(accepted.get()), "127.0.0.1");
  EXPECT_EQ(peer_address(listener.get()), "");
}

TEST(LocalAddresses, LoopbackComesLastAndANamedInterfaceAlone) {
  const auto all = local_addresses();
  ASSERT_FALSE(all.empty());
  EXPECT_TRUE(all.back().starts_with("127.") || all.back() == "::1");
  ::setenv("TRIREME_IFACE", "lo", 1);
  EXPECT_EQ(local_addresses().front(), "127.0.0.1");
  ::setenv("TRIREME_IFACE", "127.0.0.1", 1);
  EXPECT_EQ(local_addresses(), std::vector<std::string>{"127.0.0.1"});
  ::setenv("TRIREME_IFACE", "no-such-interface", 1);
  try {
    local_addresses();
    ADD_FAILURE();
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), HasSubstr("this host has "));
  }
  ::unsetenv("TRIREME_IFACE");
}

TEST(WithInterfaceName, NamesTheInterfaceOfAnAddressOfThisHost) {
  EXPECT_EQ(with_interface_name("127.0.0.1"), "lo 127.0.0.1");
  EXPECT_EQ(with_interface_name("192.0.2.1"), "192.0.2.1");  // kept for documentation: no host has it
}

}  // namespace
}  // namespace trireme::ccl
