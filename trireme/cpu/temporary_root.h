// For tests: a root directory with the files of a made-up machine.
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "trireme/base/error.h"

namespace trireme::cpu {

class TemporaryRoot {
 public:
  TemporaryRoot() {
    std::string name = (std::filesystem::temp_directory_path() / "trireme_root_XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw IoError(errno_message("mkdtemp", errno));
    path_ = name;
  }
  ~TemporaryRoot() { std::filesystem::remove_all(path_); }
  TemporaryRoot(const TemporaryRoot&) = delete;

  void write(const std::filesystem::path& file, const std::string& content) {
    std::filesystem::create_directories((path_ / file).parent_path());
    std::ofstream(path_ / file, std::ios::binary) << content;
  }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace trireme::cpu
