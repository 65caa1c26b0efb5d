#include "trireme/trainer/hub/cache.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>

#include "trireme/base/error.h"
#include "trireme/base/fd.h"
#include "trireme/trainer/files/files.h"
#include "trireme/trainer/json/json.h"

namespace trireme::trainer {
namespace {

namespace fs = std::filesystem;

std::string folder_name(std::string id) {
  if (const size_t slash = id.find('/'); slash != std::string::npos) id.replace(slash, 1, "--");
  return "models--" + id;
}

}  // namespace

bool is_commit(const std::string& revision) {
  return revision.size() == 40 && std::all_of(revision.begin(), revision.end(),
                                              [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

void make_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error)
    throw IoError(write_failure(folder, error.value()) + "; --cache_dir or HF_HOME names another place");
}

ModelCache::ModelCache(const fs::path& cache_dir, const std::string& id)
    : folder_(cache_dir / folder_name(id)), locks_(cache_dir / ".locks" / folder_name(id)) {}

bool ModelCache::has(const std::string& commit, const std::string& file) const {
  std::error_code error;
  return fs::is_regular_file(snapshot(commit) / file, error);  // behind the link
}

bool ModelCache::is_known_absent(const std::string& commit, const std::string& file) const {
  std::error_code error;
  return fs::exists(folder_ / ".no_exist" / commit / file, error);
}

std::optional<std::string> ModelCache::commit_of(const std::string& revision) const {
  if (is_commit(revision)) return revision;
  std::ifstream file(ref(revision));
  std::string commit;
  if (!(file >> commit) || commit.find('/') != std::string::npos) return std::nullopt;
  return commit;
}

void ModelCache::make_folders(const std::string& commit) const {
  make_folder(folder_ / "blobs");
  make_folder(snapshot(commit));
  make_folder(locks_);
}

void ModelCache::link(const std::string& commit, const std::string& file, const std::string& etag) const {
  // Made beside its place and renamed, so that it replaces a link to nowhere and two processes may do it at once.
  const fs::path place = snapshot(commit) / file;
  const fs::path partial = place.string() + str(".", ::getpid(), ".partial");
  ::unlink(partial.c_str());
  if (::symlink(("../../blobs/" + etag).c_str(), partial.c_str()) != 0) {
    throw IoError(errno_message(str("cannot make the symbolic link ", place.string()), errno) +
                  "; the cache needs a file system that has them: HF_HOME, HF_HUB_CACHE or --cache_dir name another place");
  }
  if (::rename(partial.c_str(), place.c_str()) != 0) {
    const int error_number = errno;
    ::unlink(partial.c_str());
    throw IoError(write_failure(place, error_number));
  }
  sync_folder(place.parent_path());
}

void ModelCache::set_commit(const std::string& revision, const std::string& commit) const {
  if (revision == commit || commit_of(revision) == commit) return;
  make_folder(ref(revision).parent_path());
  NewFile file(ref(revision));
  file.write(commit.data(), commit.size());
  file.commit();
}

void ModelCache::note_absent(const std::string& commit, const std::string& file) const {
  std::error_code error;
  const fs::path place = folder_ / ".no_exist" / commit / file;
  fs::create_directories(place.parent_path(), error);
  UniqueFd(::open(place.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666));
}

}  // namespace trireme::trainer
