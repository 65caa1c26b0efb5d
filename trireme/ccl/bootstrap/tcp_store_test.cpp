#include "trireme/ccl/bootstrap/tcp_store.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <iterator>
#include <thread>

#include "trireme/base/error.h"
#include "trireme/ccl/bootstrap/random.h"
#include "trireme/ccl/bootstrap/socket.h"
#include "trireme/ccl/bootstrap/store_protocol.h"
#include "trireme/ccl/bootstrap/wire.h"

namespace trireme::ccl {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

Deadline in(int ms) { return Deadline::after(milliseconds(ms)); }

TEST(MemoryStore, ReturnsWhatWasSet) {
  auto store = make_memory_store();
  EXPECT_EQ(store->try_get("key", in(0)), "");
  store->set("key", "value");
  EXPECT_EQ(store->try_get("key", in(0)), "value");
}

TEST(CallbackStore, AsksTheFunctions) {
  std::string last;
  auto store = make_callback_store([](const std::string& key) { return "value of " + key; },
                                   [&](const std::string& key, const std::string& value) { last = key + "=" + value; });
  EXPECT_EQ(store->try_get("a", in(0)), "value of a");
  store->set("b", "c");
  EXPECT_EQ(last, "b=c");
}

TEST(TcpStore, ClientsAndServerShareValues) {
  StoreAddress address;
  auto server = make_tcp_store_server("", address);
  auto a = make_tcp_store_client(address), b = make_tcp_store_client(address);
  EXPECT_EQ(a->try_get("key", in(5000)), "");
  a->set("key", std::string("\0binary\xff", 8));
  EXPECT_EQ(b->try_get("key", in(5000)), std::string("\0binary\xff", 8));
  EXPECT_EQ(server->try_get("key", in(5000)), std::string("\0binary\xff", 8));
  server->set("big", std::string(65536, 'x'));
  EXPECT_EQ(a->try_get("big", in(5000)), std::string(65536, 'x'));
}

TEST(TcpStore, ManyThreadsOfOneClientAndManyClients) {
  StoreAddress address;
  auto server = make_tcp_store_server("", address);
  auto shared = make_tcp_store_client(address);
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      auto own = make_tcp_store_client(address);
      for (int i = 0; i < 50; ++i) {
        const std::string key = str(t, ":", i);
        (i % 2 == 0 ? shared : own)->set(key, key);
        EXPECT_EQ((i % 2 == 0 ? own : shared)->try_get(key, in(5000)), key);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(server->try_get("7:49", in(0)), "7:49");
}

TEST(TcpStore, TooLongIsTheCallersError) {
  StoreAddress address;
  auto server = make_tcp_store_server("", address);
  auto client = make_tcp_store_client(address);
  for (Store* store : {server.get(), client.get()}) {
    EXPECT_THROW(store->set(std::string(257, 'k'), "v"), InvalidArgument);
    EXPECT_THROW(store->set("k", std::string(65537, 'v')), InvalidArgument);
  }
}

TEST(TcpStore, NothingOfAStrangerIsStored) {
  StoreAddress address;
  auto server = make_tcp_store_server("", address);
  const StoreLocation at = decode_store_address(address);
  UniqueFd stranger = connect_to("127.0.0.1", at.port, in(5000));
  send_all(stranger.get(), encode_store_request(kStoreSet, {"key", std::string(100, 'x')}), in(5000));
  char byte;
  EXPECT_THROW(recv_all(stranger.get(), &byte, 1, in(5000)), ConnectionLost);
  EXPECT_THROW(connect_proved({"127.0.0.1"}, at.port, random<Secret>(), Claim{at.job, 1, 0, 0}, in(100)), Timeout);
  EXPECT_EQ(server->try_get("key", in(0)), "");
}

TEST(TcpStore, AClientThatBreaksTheProtocolLosesItsConnectionAndNothingIsStored) {
  StoreAddress address;
  auto server = make_tcp_store_server("", address);
  const StoreLocation at = decode_store_address(address);
  UniqueFd broken = connect_proved({"127.0.0.1"}, at.port, at.secret, Claim{at.job, 1, 0, 0}, in(5000));
  send_all(broken.get(), std::string_view("\x01\xff\xff\xff\x7f", 5), in(5000));
  char byte;
  EXPECT_THROW(recv_all(broken.get(), &byte, 1, in(5000)), ConnectionLost);
  auto client = make_tcp_store_client(address);
  client->set("key", "value");
  EXPECT_EQ(client->try_get("key", in(5000)), "value");
}

TEST(TcpStore, AServerThatHasGoneIsAnErrorThatSaysSo) {
  StoreAddress address;
  auto server = make_tcp_store_server("", address);
  auto client = make_tcp_store_client(address);
  client->set("key", "value");
  server.reset();
  try {
    client->try_get("key", in(200));
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("is the process that made the kvs still running?"));
  }
}

// From now on epoll watches no descriptor beyond `last`, in any thread, as where the user's watches are used up.
bool refuse_watches_beyond(int last) {
  sock_filter program[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                           BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_epoll_ctl, 0, 5),
                           BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args[1])),
                           BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, EPOLL_CTL_ADD, 0, 3),
                           BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args[2])),
                           BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, static_cast<unsigned>(last), 0, 1),
                           BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSPC),
                           BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  sock_fprog filter{std::size(program), program};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &filter) == 0;
}

TEST(TcpStoreDeathTest, SurvivesAConnectionThatCannotBeWatched) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  auto scenario = [] {
    StoreAddress address{};
    auto server = make_tcp_store_server("", address);
    const uint16_t port = decode_store_address(address).port;
    // For the two ends of the client's connection.
    int reserved[2] = {open("/dev/null", O_RDONLY | O_CLOEXEC), open("/dev/null", O_RDONLY | O_CLOEXEC)};
    if (!refuse_watches_beyond(reserved[1])) std::_Exit(2);
    UniqueFd stranger = connect_to("127.0.0.1", port, in(1000));
    while (!is_lost(stranger.get())) std::this_thread::sleep_for(milliseconds(1));
    close(reserved[0]);
    close(reserved[1]);
    auto client = make_tcp_store_client(address);
    client->set("key", "value");
    std::_Exit(server->try_get("key", in(0)) == "value" ? 0 : 1);
  };
  EXPECT_EXIT(scenario(), testing::ExitedWithCode(0), "");
}

TEST(TcpStore, ListensWhereIpPortSays) {
  UniqueFd probe = listen_on("127.0.0.1", 0);
  const uint16_t port = local_port(probe.get());
  probe.reset();
  StoreAddress address;
  auto server = make_tcp_store_server(str("127.0.0.1_", port), address);
  EXPECT_EQ(decode_store_address(address).port, port);
  make_tcp_store_client(address)->set("key", "value");
  EXPECT_EQ(server->try_get("key", in(0)), "value");
}

TEST(TcpStore, WrongIpPortsAreRefused) {
  StoreAddress address;
  for (const char* wrong :
       {"127.0.0.1", "127.0.0.1_", "_5000", "127.0.0.1_99999", "127.0.0.1_0", "127.0.0.1_5x", "host_5000"}) {
    EXPECT_THROW(make_tcp_store_server(wrong, address), InvalidArgument) << wrong;
  }
}

TEST(StoreAddress, BytesOfSomebodyElseAreRefused) {
  StoreAddress address{};
  EXPECT_THROW(make_tcp_store_client(address), InvalidArgument);
  address.fill('\xff');
  EXPECT_THROW(make_tcp_store_client(address), InvalidArgument);
}

TEST(StoreAddress, CarriesAsManyAddressesAsFit) {
  StoreLocation location{random<JobId>(), random<Secret>(), 1234, {}};
  for (int i = 0; i < 20; ++i) location.addresses.push_back(str("2001:db8:1111:2222:3333:4444:5555:", 1000 + i));
  const StoreLocation back = decode_store_address(encode_store_address(location));
  EXPECT_EQ(back.secret, location.secret);
  EXPECT_EQ(back.port, 1234);
  ASSERT_GE(back.addresses.size(), 4u);
  for (size_t i = 0; i < back.addresses.size(); ++i) EXPECT_EQ(back.addresses[i], location.addresses[i]);
}

}  // namespace
}  // namespace trireme::ccl
