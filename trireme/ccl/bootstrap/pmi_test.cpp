// PMI-1 against a scripted process manager at the other end of a socket pair.
#include "trireme/ccl/bootstrap/pmi.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <cstdlib>
#include <thread>

#include "trireme/base/error.h"
#include "trireme/ccl/bootstrap/pmi_client.h"
#include "trireme/ccl/bootstrap/socket.h"
#include "trireme/ccl/bootstrap/wire.h"

namespace trireme::ccl {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

Deadline in(int ms) { return Deadline::after(milliseconds(ms)); }

// Answers as hydra does, keeps what is put, and remembers the commands.
class Manager {
 public:
  explicit Manager(int vallen_max = 1024, std::string greeting = "")
      : vallen_max_(vallen_max), greeting_(std::move(greeting)) {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) throw IoError(errno_message("socketpair", errno));
    client_.reset(ends[0]);
    server_.reset(ends[1]);
    thread_ = std::thread([this] { serve(); });
  }
  ~Manager() {
    ::shutdown(server_.get(), SHUT_RDWR);
    thread_.join();
  }

  UniqueFd client_end() { return std::move(client_); }
  // After the client has got its answer.
  const std::vector<std::string>& commands() const { return commands_; }
  std::map<std::string, std::string> values;

 private:
  void serve() {
    try {
      for (;;) {
        std::string line;
        while (!line.ends_with('\n')) line += recv_string(server_.get(), 1, in(10000));
        line.pop_back();
        commands_.push_back(line);
        send_all(server_.get(), answer(parse_pmi_reply(line)), in(10000));
      }
    } catch (const Error&) {  // the client has gone
    }
  }

  std::string answer(const PmiReply& command) {
    const std::string& cmd = command.at("cmd");
    if (cmd == "initack") return greeting_;
    if (cmd == "init") return "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n";
    if (cmd == "get_maxes") return str("cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=", vallen_max_, "\n");
    if (cmd == "get_my_kvsname") return "cmd=my_kvsname kvsname=kvs_1_0\n";
    if (cmd == "barrier_in") return "cmd=barrier_out\n";
    if (cmd == "finalize") return "cmd=finalize_ack\n";
    if (cmd == "put") return put(command.at("key"), command.at("value"));
    auto at = values.find(command.at("key"));
    // Words in another order, as other managers have them.
    return at == values.end() ? "cmd=get_result rc=-1 msg=key_not_found value=unknown\n"
                              : "msg=success value=" + at->second + " rc=0 cmd=get_result\n";
  }

  std::string put(const std::string& key, const std::string& value) {
    if (key.size() >= 64 || value.size() >= static_cast<size_t>(vallen_max_)) return "cmd=put_result rc=-1 msg=too_long\n";
    if (!values.emplace(key, value).second) return "cmd=put_result rc=-1 msg=duplicate_key\n";
    return "cmd=put_result rc=0 msg=success\n";
  }

  const int vallen_max_;
  const std::string greeting_;
  UniqueFd client_, server_;
  std::vector<std::string> commands_;
  std::thread thread_;
};

TEST(PmiClient, PutsAndGetsBytes) {
  Manager manager;
  PmiClient client(manager.client_end(), 0, 2, in(5000));
  EXPECT_EQ(client.get("key", in(5000)), "");
  const std::string value("\0a value = with \n anything\xff", 27);
  client.put("a key = with spaces", value, in(5000));
  client.barrier(in(5000));
  EXPECT_EQ(client.get("a key = with spaces", in(5000)), value);
  client.finalize(in(5000));
  EXPECT_EQ(manager.commands().front(), "cmd=init pmi_version=1 pmi_subversion=1");
  EXPECT_EQ(manager.commands().back(), "cmd=finalize");
}

TEST(PmiClient, CutsValuesToTheManagersLimit) {
  for (int limit : {64, 100, 1024}) {
    Manager manager(limit);
    PmiClient client(manager.client_end(), 0, 2, in(5000));
    for (size_t bytes : {0, 1, 29, 30, 31, 509, 510, 512, 1000}) {
      const std::string key = str("key", bytes);
      client.put(key, std::string(bytes, 'x'), in(5000));
      EXPECT_EQ(client.get(key, in(5000)), std::string(bytes, 'x')) << limit << " " << bytes;
    }
  }
}

TEST(PmiClient, LearnsRankAndSizeOverAPort) {
  for (const char* greeting :
       {"cmd=initack rc=0\ncmd=set size=4\ncmd=set rank=2\ncmd=set debug=0\n", "cmd=initack rc=0 size=4 rank=2 debug=0\n"}) {
    Manager manager(1024, greeting);
    PmiClient client(manager.client_end(), "2", in(5000));
    EXPECT_EQ(client.rank(), 2);
    EXPECT_EQ(client.size(), 4);
    client.put("key", "value", in(5000));
    EXPECT_EQ(client.get("key", in(5000)), "value");
  }
}

TEST(PmiClient, ARefusalSaysWhy) {
  Manager manager;
  PmiClient client(manager.client_end(), 0, 2, in(5000));
  client.put("key", "value", in(5000));
  try {
    client.put("key", "value", in(5000));
    FAIL();
  } catch (const IoError& error) {
    EXPECT_THAT(error.what(), HasSubstr("duplicate_key"));
  }
}

TEST(PmiClient, AManagerThatGoesOrIsSilentIsAnError) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  UniqueFd server(ends[1]);
  EXPECT_THROW(PmiClient(UniqueFd(ends[0]), 0, 2, in(50)), Timeout);
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  ::close(ends[1]);
  EXPECT_THROW(PmiClient(UniqueFd(ends[0]), 0, 2, in(1000)), ConnectionLost);
}

TEST(PmiClient, ValuesOfSomebodyElseAreMalformed) {
  for (const char* wrong : {"", "1", "0.", "1.xy", "1.abc", "2.ab", "1000.ab", "99999999999999999999.ab"}) {
    Manager manager;
    manager.values[pmi_key("key", 0)] = wrong;
    PmiClient client(manager.client_end(), 0, 2, in(5000));
    EXPECT_THROW(client.get("key", in(5000)), wire::Malformed) << wrong;
  }
}

TEST(PmiReply, IsReadByKey) {
  const PmiReply reply = parse_pmi_reply("rc=0  msg=a=b stray cmd=maxes vallen_max=1024");
  EXPECT_EQ(reply.at("cmd"), "maxes");
  EXPECT_EQ(reply.at("msg"), "a=b");
  EXPECT_EQ(pmi_number(reply, "vallen_max"), 1024);
  EXPECT_THROW(pmi_number(reply, "msg"), wire::Malformed);
  EXPECT_THROW(pmi_number(reply, "absent"), wire::Malformed);
  EXPECT_THROW(parse_pmi_reply("rc=0"), wire::Malformed);
  EXPECT_THROW(parse_pmi_reply(""), wire::Malformed);
}

// Variables for the time of one test.
class LauncherVariables : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : kNames) ::unsetenv(name);
  }
  void TearDown() override { SetUp(); }
  static void set(const char* name, const char* value) { ::setenv(name, value, 1); }

  static constexpr const char* kNames[] = {"RANK",
                                           "WORLD_SIZE",
                                           "LOCAL_RANK",
                                           "LOCAL_WORLD_SIZE",
                                           "PMI_RANK",
                                           "PMI_SIZE",
                                           "PMI_FD",
                                           "MPI_LOCALRANKID",
                                           "MPI_LOCALNRANKS",
                                           "OMPI_COMM_WORLD_RANK",
                                           "PMI_PORT",
                                           "PMI_ID",
                                           "SLURM_PROCID",
                                           "OMPI_COMM_WORLD_SIZE",
                                           "OMPI_COMM_WORLD_LOCAL_RANK",
                                           "SLURM_NTASKS",
                                           "SLURM_STEP_NUM_TASKS",
                                           "SLURM_LOCALID",
                                           "OMPI_COMM_WORLD_LOCAL_SIZE",
                                           "SLURM_STEP_TASKS_PER_NODE"};
};

TEST_F(LauncherVariables, NoneMeansNoLauncher) {
  EXPECT_FALSE(launcher_rank().has_value());
  EXPECT_FALSE(connect_pmi().has_value());
}

TEST_F(LauncherVariables, Hydra) {
  set("PMI_RANK", "5"), set("PMI_SIZE", "8"), set("MPI_LOCALRANKID", "1"), set("MPI_LOCALNRANKS", "4");
  auto found = launcher_rank();
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->rank, 5);
  EXPECT_EQ(found->size, 8);
  EXPECT_EQ(found->local_rank, 1);
  EXPECT_EQ(found->local_size, 4);
  EXPECT_STREQ(found->launcher, "hydra");
}

TEST_F(LauncherVariables, TorchrunInsideAnotherLauncherWins) {
  set("PMI_RANK", "0"), set("PMI_SIZE", "2");
  set("RANK", "3"), set("WORLD_SIZE", "4");
  EXPECT_STREQ(launcher_rank()->launcher, "hydra");  // a script's own RANK, or a pod's
  set("LOCAL_RANK", "1"), set("LOCAL_WORLD_SIZE", "2");
  EXPECT_STREQ(launcher_rank()->launcher, "torchrun");
  EXPECT_EQ(launcher_rank()->rank, 3);
}

TEST_F(LauncherVariables, Slurm) {
  set("SLURM_PROCID", "1"), set("SLURM_NTASKS", "7"), set("SLURM_LOCALID", "1");
  EXPECT_FALSE(launcher_rank().has_value()) << "a batch script's variables";
  set("SLURM_STEP_NUM_TASKS", "7");
  EXPECT_EQ(launcher_rank()->rank, 1);
  EXPECT_EQ(launcher_rank()->local_size, 2);
  set("SLURM_STEP_TASKS_PER_NODE", "3(x2),1");
  EXPECT_EQ(launcher_rank()->local_size, 3);
}

TEST_F(LauncherVariables, SlurmWithItsPmi2PluginIsNotHydra) {
  set("PMI_RANK", "5"), set("PMI_SIZE", "6");
  EXPECT_STREQ(launcher_rank()->launcher, "hydra") << "there is no other";
  set("SLURM_PROCID", "5"), set("SLURM_STEP_NUM_TASKS", "6"), set("SLURM_LOCALID", "1"), set("SLURM_STEP_TASKS_PER_NODE", "2(x3)");
  EXPECT_STREQ(launcher_rank()->launcher, "Slurm");
  EXPECT_EQ(launcher_rank()->local_rank, 1);
  EXPECT_EQ(launcher_rank()->local_size, 2);
  set("MPI_LOCALRANKID", "0"), set("MPI_LOCALNRANKS", "1");
  EXPECT_STREQ(launcher_rank()->launcher, "hydra") << "an mpirun within the step";
}

TEST_F(LauncherVariables, NonsenseIsTheCallersError) {
  set("PMI_RANK", "2"), set("PMI_SIZE", "2");
  EXPECT_THROW(launcher_rank(), InvalidArgument);
  for (const char* rank : {"two", "1,2", "1(x2)", "1 "}) {
    set("PMI_RANK", rank);
    EXPECT_THROW(launcher_rank(), InvalidArgument) << rank;
  }
}

TEST_F(LauncherVariables, ADescriptorThatIsNoSocketIsNotTheChannel) {
  set("PMI_RANK", "0"), set("PMI_SIZE", "2"), set("PMI_FD", "987");
  EXPECT_FALSE(connect_pmi().has_value());
}

}  // namespace
}  // namespace trireme::ccl
