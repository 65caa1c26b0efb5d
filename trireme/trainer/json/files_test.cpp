#include "trireme/trainer/json/files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <filesystem>

#include "trireme/base/error.h"
#include "trireme/cpu/temporary_root.h"
#include "trireme/trainer/json/json.h"

namespace trireme::trainer {
namespace {

using std::filesystem::directory_iterator;
using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

size_t count_files(const std::filesystem::path& folder) {
  return static_cast<size_t>(std::distance(directory_iterator(folder), {}));
}

TEST(Files, ReplaceWhatWasThere) {
  cpu::TemporaryRoot root;
  const auto file = root.path() / "state.json";
  write_file_atomically(file, "old and longer");
  write_file_atomically(file, std::string("new\0", 4));
  EXPECT_EQ(read_file(file), std::string("new\0", 4));
  EXPECT_EQ(count_files(root.path()), 1u) << "a temporary file remains";
}

// The disk is "full" at 4096 bytes: the kernel refuses what goes beyond the limit of a file's size.
TEST(Files, LeaveTheOldFileWhereTheNewOneDoesNotFit) {
  cpu::TemporaryRoot root;
  const auto file = root.path() / "state.json";
  write_file_atomically(file, "old");
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{4096, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  EXPECT_THAT([&] { write_file_atomically(file, std::string(10000, 'x')); },
              ThrowsMessage<IoError>(AllOf(HasSubstr(file.string()), HasSubstr("File too large"))));
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(read_file(file), "old");
  EXPECT_EQ(count_files(root.path()), 1u) << "a temporary file remains";
}

TEST(Files, ComplaintsNamePathAndRemedy) {
  cpu::TemporaryRoot root;
  const auto file = root.path() / "missing" / "state.json";
  EXPECT_THAT([&] { write_file_atomically(file, "x"); },
              ThrowsMessage<IoError>(AllOf(HasSubstr(file.string()), HasSubstr("its directory does not exist"))));
  root.write("file", "x");
  EXPECT_THAT([&] { make_directory(root.path() / "file" / "folder"); },
              ThrowsMessage<IoError>(HasSubstr("a part of the path is a file")));
  EXPECT_THAT([&] { make_directory(root.path() / "file"); },
              ThrowsMessage<IoError>(HasSubstr("is a file, not a directory")));
  make_directory(root.path() / "a" / "b");
  make_directory(root.path() / "a" / "b");
  EXPECT_TRUE(std::filesystem::is_directory(root.path() / "a" / "b"));
}

}  // namespace
}  // namespace trireme::trainer
