#include "trireme/trainer/json/files.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <system_error>

#include "trireme/base/error.h"
#include "trireme/base/fd.h"

namespace trireme::trainer {
namespace {

using std::filesystem::path;

[[noreturn]] void fail(std::string_view what, const path& file, int error_number) {
  std::string message = errno_message(str("cannot ", what, " ", file.string()), error_number);
  if (const std::string_view remedy = remedy_for(error_number); !remedy.empty()) message += str(" (", remedy, ")");
  throw IoError(message);
}

void write_all(int fd, std::string_view content, const path& file) {
  while (!content.empty()) {
    const ssize_t written = ::write(fd, content.data(), content.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail("write", file, errno);
    content.remove_prefix(static_cast<size_t>(written));
  }
}

void write_and_sync(const path& file, std::string_view content, const path& shown) {
  const UniqueFd fd(::open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (fd.get() < 0) fail("write", shown, errno);
  write_all(fd.get(), content, shown);
  if (::fsync(fd.get()) != 0) fail("write", shown, errno);
}

}  // namespace

std::string_view remedy_for(int error_number) {
  switch (error_number) {
    case ENOSPC:
    case EDQUOT: return "the disk or the quota is full: free some space or choose another directory";
    case EACCES:
    case EPERM: return "choose a directory in which this user may write";
    case EROFS: return "the file system is read-only: choose another directory";
    case ENOENT: return "its directory does not exist";
    case ENOTDIR: return "a part of the path is a file, not a directory";
    default: return "";
  }
}

void sync_directory(const path& directory) {
  const path named = directory.empty() ? path(".") : directory;
  const UniqueFd fd(::open(named.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  // Some file systems cannot sync a directory (EINVAL): the rename is then as safe as it gets.
  if (fd.get() < 0 || (::fsync(fd.get()) != 0 && errno != EINVAL)) fail("sync the directory", named, errno);
}

void make_directory(const path& directory) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) fail("make the directory", directory, error.value());
  if (!std::filesystem::is_directory(directory)) fail("make the directory", directory, ENOTDIR);
}

void write_file_atomically(const path& file, std::string_view content) {
  // Two processes that write the same file do not write the same temporary one.
  path temporary = file;
  temporary += str(".", ::getpid(), ".tmp");
  try {
    write_and_sync(temporary, content, file);
    if (::rename(temporary.c_str(), file.c_str()) != 0) fail("write", file, errno);
  } catch (...) {
    ::unlink(temporary.c_str());
    throw;
  }
  sync_directory(file.parent_path());
}

}  // namespace trireme::trainer
