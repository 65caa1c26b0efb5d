// The data ports in a hostile neighbourhood. One rank is real; the other is played by the test, which so learns where the first one listens.
#include "trireme/ccl/fabric/tcp/tcp_mesh.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <thread>

#include "trireme/base/error.h"
#include "trireme/ccl/bootstrap/test_strangers.h"
#include "trireme/ccl/bootstrap/wire.h"

namespace trireme::ccl {
namespace {

using ::testing::HasSubstr;

Deadline in(int ms) { return Deadline::after(std::chrono::milliseconds(ms)); }

// 10,000 strangers and a second claimant of a stream come before the last data connection does.
TEST(TcpMesh, ComesUpAmongStrangers) {
  constexpr int kStrangers = 10000;
  setenv("TRIREME_TCP_STREAMS", "2", 1);
  auto store = make_memory_store();
  std::vector<std::vector<std::unique_ptr<Stream>>> streams;
  std::thread real([&] {
    auto control = Control::meet(2, 0, *store, "key", in(20000));
    streams = connect_tcp_mesh(*control, {0, 1}, in(60000));
    control->allgather("", in(20000));
  });

  auto control = Control::meet(2, 1, *store, "key", in(20000));
  wire::Writer card;  // port, streams, no addresses: nobody connects to the higher rank
  card.integer(uint16_t{0});
  card.integer(uint32_t{2});
  card.integer(uint32_t{0});
  const std::string theirs = control->allgather(card.take(), in(20000))[0];
  const uint16_t port = wire::Reader(theirs).integer<uint16_t>();
  auto claim = [&](uint32_t stream) { return Claim{control->job(), 2, 1, stream}; };
  auto connect = [&](uint32_t stream) { return connect_proved({"127.0.0.1"}, port, control->secret(), claim(stream), in(20000)); };
  UniqueFd first = connect(1);
  Strangers strangers(port, claim(2));
  for (int i = 0; i < kStrangers; ++i) strangers.connect(i);
  for (uint32_t wrong : {0u, 1u, 3u}) {
    SCOPED_TRACE(wrong);
    try {
      connect(wrong);
      ADD_FAILURE() << "let in";
    } catch (const IoError& error) {
      EXPECT_THAT(error.what(), HasSubstr("already there"));
    }
  }
  UniqueFd second = connect(2);
  control->allgather("", in(20000));
  real.join();

  ASSERT_EQ(streams.size(), 2u);
  EXPECT_TRUE(streams[0].empty());
  ASSERT_EQ(streams[1].size(), 2u);
  // Each is the connection of its claimant.
  for (int stream = 0; stream < 2; ++stream) {
    send_all(stream == 0 ? first.get() : second.get(), std::string(1, static_cast<char>('a' + stream)), in(1000));
    EXPECT_EQ(recv_string(streams[1][static_cast<size_t>(stream)]->fd(), 1, in(5000)), std::string(1, static_cast<char>('a' + stream)));
  }
  unsetenv("TRIREME_TCP_STREAMS");
}

}  // namespace
}  // namespace trireme::ccl
