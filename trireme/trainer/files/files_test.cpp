#include "trireme/trainer/files/files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cerrno>
#include <csignal>
#include <fstream>
#include <numeric>
#include <sstream>

#include "trireme/base/error.h"

namespace trireme::trainer {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

class Files : public testing::Test {
 protected:
  Files() : folder_(testing::TempDir() + str("files_test.", ::getpid())) { std::filesystem::create_directory(folder_); }
  ~Files() override { std::filesystem::remove_all(folder_); }

  static std::string content(const std::filesystem::path& path) {
    std::ostringstream text;
    text << std::ifstream(path, std::ios::binary).rdbuf();
    return text.str();
  }

  std::vector<std::string> names() const {
    std::vector<std::string> found;
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) found.push_back(entry.path().filename());
    return found;
  }

  std::filesystem::path folder_;
};

TEST_F(Files, PiecesOfAnySizeArriveInOrder) {
  std::string expected;
  NewFile file(folder_ / "x");
  for (size_t bytes : {1, 0, 70000, 1 << 20, (1 << 20) - 1, 3 << 20, 5}) {
    std::string piece(bytes, '\0');
    std::iota(piece.begin(), piece.end(), static_cast<char>(expected.size() + 1));
    file.write(piece.data(), piece.size());
    expected += piece;
  }
  EXPECT_FALSE(std::filesystem::exists(folder_ / "x"));
  file.commit();
  EXPECT_EQ(content(folder_ / "x"), expected);
  EXPECT_EQ(names().size(), 1u);
}

TEST_F(Files, WhatIsNotCommittedLeavesNoTrace) {
  std::ofstream(folder_ / "x") << "old";
  {
    NewFile file(folder_ / "x");
    file.write("new", 3);
  }
  EXPECT_EQ(content(folder_ / "x"), "old");
  EXPECT_EQ(names().size(), 1u);
}

TEST_F(Files, RefusalsSayWhatToDo) {
  EXPECT_THAT([&] { NewFile(folder_ / "missing" / "x"); },
              ThrowsMessage<IoError>(AllOf(HasSubstr("missing/x: No such file"), HasSubstr("make it first"))));
  std::filesystem::create_directory(folder_ / "folder");
  EXPECT_THAT([&] { NewFile(folder_ / "folder").commit(); }, ThrowsMessage<IoError>(HasSubstr("Is a directory")));
  EXPECT_EQ(names().size(), 1u);
  EXPECT_THAT(write_failure("a/b", ENOSPC), HasSubstr("free some space"));
  EXPECT_THAT(write_failure("a/b", EROFS), HasSubstr("a is on a read-only file system"));
  EXPECT_THAT(write_failure("b", EACCES), HasSubstr("may not write in ."));
}

// The disk is "full" at 4096 bytes: the kernel refuses what goes beyond the limit of a file's size.
TEST_F(Files, WhatDoesNotFitLeavesTheOldFile) {
  const auto file = folder_ / "state.json";
  write_file_atomically(file, "older and longer");
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
  EXPECT_EQ(content(file), "old");
  EXPECT_EQ(names().size(), 1u) << "a temporary file remains";
}

TEST_F(Files, DirectoriesAreMadeOrTheReasonIsTold) {
  std::ofstream(folder_ / "file") << "x";
  EXPECT_THAT([&] { make_directory(folder_ / "file" / "folder"); }, ThrowsMessage<IoError>(HasSubstr("Not a directory")));
  EXPECT_THAT([&] { make_directory(folder_ / "file"); }, ThrowsMessage<IoError>(HasSubstr("a file, not a directory")));
  make_directory(folder_ / "a" / "b");
  make_directory(folder_ / "a" / "b");
  EXPECT_TRUE(std::filesystem::is_directory(folder_ / "a" / "b"));
}

}  // namespace
}  // namespace trireme::trainer
