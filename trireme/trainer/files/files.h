// Files that appear whole or not at all, and what to tell a user whose disk refuses them.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/fd.h"

namespace trireme::trainer {

// "cannot write out/model.safetensors: No space left on device; free some space there, or write elsewhere".
std::string write_failure(const std::filesystem::path& path, int error_number);

// What was done in a folder (a file renamed, a link made) outlasts a loss of power. IoError.
void sync_folder(const std::filesystem::path& folder);

// A file in the making: written beside `path` under a name of its own, and renamed at the end. Readers of an older `path`,
// mapped or open, keep what they have. Owns the descriptor; for one thread; blocks on the disk. A failure, or an end
// without commit(), leaves `path` as it was and nothing else behind.
class NewFile {
 public:
  explicit NewFile(std::filesystem::path path);
  NewFile(const NewFile&) = delete;
  ~NewFile();

  // Gathers small pieces into large writes.
  void write(const void* data, size_t bytes);
  // Everything on the disk, under its name.
  void commit();

 private:
  void flush();
  void write_through(const char* data, size_t bytes);
  [[noreturn]] void fail(int error_number) const;

  std::filesystem::path path_;
  std::filesystem::path partial_;
  UniqueFd fd_;
  std::vector<char> gathered_;
};

// The whole of `content`, as a NewFile.
void write_file_atomically(const std::filesystem::path& path, std::string_view content);

// Makes the directory and those above it; one that exists is fine. IoError.
void make_directory(const std::filesystem::path& path);

}  // namespace trireme::trainer
