// A lock between processes of one host (and of others, where the file system carries flock), as huggingface_hub holds it.
#pragma once

#include <chrono>
#include <filesystem>
#include <string>

#include "trireme/base/fd.h"

namespace trireme::trainer {

// Held until it is destroyed or the process ends, however it ends.
class FileLock {
 public:
  // Waits while another process holds it, with a line on stderr every ten seconds, as long as `watched`, the file which that
  // one is writing, grows. Timeout if it has not grown for `timeout`. IoError if the lock file cannot be made.
  FileLock(const std::filesystem::path& path, const std::filesystem::path& watched, std::chrono::seconds timeout);

 private:
  UniqueFd fd_;
};

}  // namespace trireme::trainer
