#include "trireme/ccl/bootstrap/forked_child.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <atomic>
#include <functional>
#include <thread>

namespace trireme::ccl {
namespace {

bool is_open(int fd) { return ::fcntl(fd, F_GETFD) != -1; }

UniqueFd open_something() { return UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC)); }

// Whether `check` holds in a forked child.
bool in_child(const std::function<bool()>& check) {
  pid_t child = ::fork();
  if (child == 0) ::_exit(check() ? 0 : 1);
  int status = -1;
  ::waitpid(child, &status, 0);
  return status == 0;
}

TEST(ProcessFd, IsClosedInTheChildAndStaysOpenInTheParent) {
  ProcessFd fd(open_something());
  const int number = fd.get();
  EXPECT_TRUE(in_child([&] { return !is_open(number) && fd.get() == -1 && !fd; }));
  EXPECT_TRUE(is_open(number));
  EXPECT_EQ(fd.get(), number);
}

TEST(ProcessFd, TheChildDoesNotCloseANumberThatItHasReused) {
  auto fd = std::make_unique<ProcessFd>(open_something());
  EXPECT_TRUE(in_child([&] {
    ProcessFd own(open_something());  // gets the number that was closed
    const int number = own.get();
    fd.reset();
    return is_open(number) && own.get() == number;
  }));
}

TEST(ProcessFd, MovesAndReleases) {
  ProcessFd a(open_something());
  const int number = a.get();
  ProcessFd b = std::move(a);
  EXPECT_EQ(a.get(), -1);
  EXPECT_EQ(b.get(), number);
  UniqueFd plain = b.release();
  EXPECT_EQ(plain.get(), number);
  EXPECT_TRUE(in_child([&] { return is_open(number); }));  // no longer ours to close
}

TEST(ForeignSocket, IsClosedInTheChildAsLongAsTheNumberIsThatSocket) {
  int pair[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
  register_foreign_socket(pair[0]);
  EXPECT_TRUE(in_child([&] { return !is_open(pair[0]) && is_open(pair[1]); }));
  const int number = pair[0];
  ::close(pair[0]);
  UniqueFd other = open_something();  // gets the number
  ASSERT_EQ(other.get(), number);
  EXPECT_TRUE(in_child([&] { return is_open(number); }));
  ::close(pair[1]);
}

TEST(ForeignSocket, WhatIsNoSocketIsLeftAlone) {
  UniqueFd file = open_something();
  register_foreign_socket(file.get());
  EXPECT_TRUE(in_child([&] { return is_open(file.get()); }));
}

TEST(ProcessFd, ClosesOnDestruction) {
  int number;
  {
    ProcessFd fd(open_something());
    number = fd.get();
  }
  EXPECT_FALSE(is_open(number));
}

TEST(ProcessFd, ForkingWhileOtherThreadsOpenAndCloseIsSafe) {
  std::atomic<bool> stop{false};
  std::thread busy([&] {
    while (!stop) ProcessFd fd(open_something());
  });
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(in_child([] { return static_cast<bool>(ProcessFd(open_something())); }));
  stop = true;
  busy.join();
}

}  // namespace
}  // namespace trireme::ccl
