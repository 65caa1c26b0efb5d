// The layout of Hugging Face's cache, for one model:
//
//   <cache>/models--org--name/blobs/<etag>                   content, under the name that the hub gives it
//                             snapshots/<commit>/<file>      links to ../../blobs/<etag>
//                             refs/<revision>                the commit that "main" was when last seen
//                             .no_exist/<commit>/<file>      files that the commit does not have
//   <cache>/.locks/models--org--name/<etag>.lock             held by the process that downloads
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace trireme::trainer {

class ModelCache {
 public:
  ModelCache(const std::filesystem::path& cache_dir, const std::string& id);

  const std::filesystem::path& folder() const { return folder_; }
  std::filesystem::path snapshot(const std::string& commit) const { return folder_ / "snapshots" / commit; }
  std::filesystem::path ref(const std::string& revision) const { return folder_ / "refs" / revision; }
  std::filesystem::path blob(const std::string& etag) const { return folder_ / "blobs" / etag; }
  std::filesystem::path incomplete(const std::string& etag) const { return folder_ / "blobs" / (etag + ".incomplete"); }
  std::filesystem::path lock(const std::string& etag) const { return locks_ / (etag + ".lock"); }

  bool has(const std::string& commit, const std::string& file) const;
  bool is_known_absent(const std::string& commit, const std::string& file) const;
  // The commit of a revision, as far as is known here; a commit is its own.
  std::optional<std::string> commit_of(const std::string& revision) const;

  void make_folders(const std::string& commit) const;
  void link(const std::string& commit, const std::string& file, const std::string& etag) const;
  void set_commit(const std::string& revision, const std::string& commit) const;
  void note_absent(const std::string& commit, const std::string& file) const;  // as far as the cache may be written to

 private:
  std::filesystem::path folder_;
  std::filesystem::path locks_;
};

bool is_commit(const std::string& revision);  // 40 hexadecimal digits

// With all above it. IoError says what to do.
void make_folder(const std::filesystem::path& folder);

}  // namespace trireme::trainer
