#include "trireme/trainer/hub/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <cerrno>
#include <thread>

#include "trireme/base/deadline.h"
#include "trireme/base/error.h"
#include "trireme/base/log.h"
#include "trireme/trainer/files/files.h"

namespace trireme::trainer {
namespace {

constexpr std::chrono::milliseconds kPollInterval{50};
constexpr std::chrono::seconds kSayEvery{10};

UniqueFd open_lock(const std::filesystem::path& path) {
  UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  if (!fd) throw IoError(write_failure(path, errno));
  return fd;
}

// Whoever held it may have removed it: then a lock on it keeps nobody out who comes now.
bool is_still(const std::filesystem::path& path, const UniqueFd& fd) {
  struct stat held, named;
  return ::fstat(fd.get(), &held) == 0 && ::stat(path.c_str(), &named) == 0 && held.st_ino == named.st_ino &&
         held.st_dev == named.st_dev;
}

uint64_t bytes_of(const std::filesystem::path& path) {
  struct stat status;
  return ::stat(path.c_str(), &status) == 0 ? static_cast<uint64_t>(status.st_size) : 0;
}

}  // namespace

FileLock::FileLock(const std::filesystem::path& path, const std::filesystem::path& watched, std::chrono::seconds timeout)
    : fd_(open_lock(path)) {
  uint64_t seen = bytes_of(watched);
  Deadline deadline = Deadline::after(timeout);
  Deadline say = Deadline::after(kSayEvery);
  for (;;) {
    if (::flock(fd_.get(), LOCK_EX | LOCK_NB) == 0) {
      if (is_still(path, fd_)) return;
      fd_ = open_lock(path);
      continue;
    }
    if (errno != EWOULDBLOCK && errno != EINTR) {
      throw IoError(errno_message(str("cannot lock ", path.string()), errno) +
                    "; put the cache on a file system with locks (HF_HUB_CACHE, HF_DATASETS_CACHE)");
    }
    if (const uint64_t now = bytes_of(watched); now != seen) {
      seen = now;
      deadline = Deadline::after(timeout);
    }
    if (deadline.passed()) {
      throw Timeout(str("another process holds ", path.string(), " and has not written to ", watched.string(), " for ",
                        timeout.count(), " s; end it (fuser ", path.string(), " tells which it is) and try again"));
    }
    if (say.passed()) {
      log(LogLevel::warn, str("waiting for another process that downloads ", watched.string(), ": ", seen, " bytes so far"));
      say = Deadline::after(kSayEvery);
    }
    std::this_thread::sleep_for(kPollInterval);
  }
}

}  // namespace trireme::trainer
