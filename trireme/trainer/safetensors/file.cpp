#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>

#include "trireme/base/error.h"
#include "trireme/base/fd.h"
#include "trireme/trainer/safetensors/safetensors.h"

namespace trireme::trainer {
namespace {

std::span<const std::byte> map_file(const std::filesystem::path& path) {
  const std::string what = str("cannot read ", path.string());
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));  // or a pipe of that name would wait for a writer
  struct stat status;
  if (!fd || ::fstat(fd.get(), &status) != 0) throw IoError(errno_message(what, errno));
  if (!S_ISREG(status.st_mode)) throw IoError(str(what, ": it is not a file"));
  if (status.st_size == 0) return {};
  const size_t bytes = static_cast<size_t>(status.st_size);
  void* memory = ::mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, fd.get(), 0);
  if (memory == MAP_FAILED) throw IoError(errno_message(what, errno));
  return {static_cast<const std::byte*>(memory), bytes};
}

void unmap(std::span<const std::byte> mapping) {
  if (!mapping.empty()) ::munmap(const_cast<std::byte*>(mapping.data()), mapping.size());
}

}  // namespace

SafetensorsFile::SafetensorsFile(std::filesystem::path path) : path_(std::move(path)), mapping_(map_file(path_)) {
  try {
    content_ = parse_safetensors(mapping_, path_.string());
  } catch (...) {
    unmap(mapping_);
    throw;
  }
}

SafetensorsFile::SafetensorsFile(SafetensorsFile&& other) noexcept
    : path_(std::move(other.path_)), mapping_(std::exchange(other.mapping_, {})), content_(std::move(other.content_)) {}

SafetensorsFile::~SafetensorsFile() { unmap(mapping_); }

}  // namespace trireme::trainer
