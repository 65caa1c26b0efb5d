#include "trireme/trainer/files/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "trireme/base/error.h"

namespace trireme::trainer {
namespace {

// Large enough that the cost of a call vanishes on any disk, small enough to stay in the cache.
constexpr size_t kGatherBytes = size_t{1} << 20;

std::string remedy(const std::filesystem::path& path, int error_number) {
  const std::string folder = path.has_parent_path() ? path.parent_path().string() : ".";
  switch (error_number) {
    case ENOSPC: return "; free some space there, or write elsewhere";
    case EDQUOT: return "; your quota is used up: remove something, or write elsewhere";
    case EROFS: return str("; ", folder, " is on a read-only file system: write elsewhere");
    case EACCES:
    case EPERM:
      return str("; you (uid ", ::geteuid(), ") may not write in ", folder, ": change its owner, or write elsewhere");
    case ENOENT:
    case ENOTDIR: return str("; ", folder, " must be a directory: make it first");
    default: return "";
  }
}

std::filesystem::path folder_of(const std::filesystem::path& path) {
  return path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
}

}  // namespace

std::string write_failure(const std::filesystem::path& path, int error_number) {
  return errno_message(str("cannot write ", path.string()), error_number) + remedy(path, error_number);
}

void sync_folder(const std::filesystem::path& folder) {
  UniqueFd fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  // Some network file systems have no fsync for folders; they answer EINVAL, and there is nothing to be done.
  if (!fd || (::fsync(fd.get()) != 0 && errno != EINVAL)) throw IoError(write_failure(folder, errno));
}

NewFile::NewFile(std::filesystem::path path)
    : path_(std::move(path)),
      partial_(folder_of(path_) / str(".trireme-", ::getpid(), "-", path_.filename().string(), ".partial")),
      fd_(::open(partial_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)) {
  if (!fd_) throw IoError(write_failure(path_, errno));
  gathered_.reserve(kGatherBytes);
}

NewFile::~NewFile() {
  if (fd_) ::unlink(partial_.c_str());
}

void NewFile::fail(int error_number) const { throw IoError(write_failure(path_, error_number)); }

void NewFile::write(const void* data, size_t bytes) {
  const char* begin = static_cast<const char*>(data);
  if (gathered_.size() + bytes > kGatherBytes) flush();
  if (bytes >= kGatherBytes) {
    write_through(begin, bytes);
  } else {
    gathered_.insert(gathered_.end(), begin, begin + bytes);
  }
}

void NewFile::flush() {
  write_through(gathered_.data(), gathered_.size());
  gathered_.clear();
}

void NewFile::write_through(const char* data, size_t bytes) {
  while (bytes > 0) {
    const ssize_t written = ::write(fd_.get(), data, bytes);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail(errno);
    data += written;
    bytes -= static_cast<size_t>(written);
  }
}

void NewFile::commit() {
  flush();
  if (::fsync(fd_.get()) != 0) fail(errno);
  if (::rename(partial_.c_str(), path_.c_str()) != 0) fail(errno);
  fd_.reset();
  sync_folder(folder_of(path_));
}

void write_file_atomically(const std::filesystem::path& path, std::string_view content) {
  NewFile file(path);
  file.write(content.data(), content.size());
  file.commit();
}

void make_directory(const std::filesystem::path& path) {
  std::error_code error;
  if (std::filesystem::exists(path, error) && !std::filesystem::is_directory(path))
    throw IoError(str(path.string(), " is a file, not a directory: remove it, or write elsewhere"));
  std::filesystem::create_directories(path, error);
  if (error) throw IoError(write_failure(path, error.value()));
}

}  // namespace trireme::trainer
