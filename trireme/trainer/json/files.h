// Files that are either whole or not there: what a run leaves behind after a crash can be trusted.
#pragma once

#include <filesystem>
#include <string_view>

namespace trireme::trainer {

// Writes `content` under a temporary name beside `path`, forces it to the disk and renames it: a reader sees the old file or
// the new one, also after a crash. IoError names the path, the reason and the remedy; the old file is then as it was and no
// temporary file remains.
void write_file_atomically(const std::filesystem::path& path, std::string_view content);

// Makes the directory and those above it; one that exists is fine. IoError as above.
void make_directory(const std::filesystem::path& path);

// Forces a directory's entries (a rename, say) to the disk.
void sync_directory(const std::filesystem::path& path);

// What to do about this errno of a file operation: "the disk is full: free some space or choose another directory"; empty
// where there is nothing to say.
std::string_view remedy_for(int error_number);

}  // namespace trireme::trainer
