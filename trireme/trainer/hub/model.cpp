// A model by its name: which commit its revision is, then each of its files, from the cache or from the hub.
#include <algorithm>
#include <charconv>
#include <set>

#include "trireme/base/log.h"
#include "trireme/trainer/files/files.h"
#include "trireme/trainer/hub/cache.h"
#include "trireme/trainer/hub/download.h"
#include "trireme/trainer/hub/file_lock.h"
#include "trireme/trainer/hub/hub.h"
#include "trireme/trainer/safetensors/safetensors.h"

namespace trireme::trainer {
namespace {

namespace fs = std::filesystem;

constexpr const char* kConfig = "config.json";
constexpr const char* kWeights = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";
constexpr const char* kTokenizerFiles[] = {
    "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "vocab.txt", "vocab.json",
    "merges.txt"};

enum class Wanted { model, config, tokenizer };

std::vector<std::string> shards_of(const fs::path& index) {
  std::set<std::string> shards;
  for (const auto& [tensor, shard] : read_safetensors_index(index)) shards.insert(shard);
  return {shards.begin(), shards.end()};
}

class HubModel {
 public:
  HubModel(const std::string& id, const HubSettings& settings, const std::string& revision, Wanted wanted)
      : id_(id),
        settings_(settings),
        revision_(revision),
        wanted_(wanted),
        http_(settings),
        cache_(settings.cache_dir, id) {}

  fs::path directory() {
    const auto cached = cache_.commit_of(revision_);
    const bool is_complete = cached && missing(*cached).empty();
    if (settings_.offline) {
      if (is_complete) return cache_.snapshot(*cached);
      throw IoError(
          str(id_, ": HF_HUB_OFFLINE or TRANSFORMERS_OFFLINE forbids to ask ", settings_.endpoint, ". ", advice(cached)));
    }
    try {
      // Whoever has everything does not wait for long to hear that nothing is new.
      const std::string commit = is_commit(revision_) ? revision_ : ask_for_commit(is_complete ? 1 : settings_.attempts);
      fetch_all(commit);
      cache_.set_commit(revision_, commit);  // last: what "main" leads to has all that was wanted
      return cache_.snapshot(commit);
    } catch (const HubUnreachable& error) {
      if (!is_complete) throw IoError(str(error.what(), ". ", advice(cached)));
      log(LogLevel::warn, str(error.what(), "; using ", cache_.snapshot(*cached).string()));
      return cache_.snapshot(*cached);
    }
  }

 private:
  // Those without which nothing works, that the cache does not have.
  std::vector<std::string> missing(const std::string& commit) const {
    const auto lacks = [&](const std::string& file) { return !cache_.has(commit, file); };
    std::vector<std::string> files;
    if (wanted_ == Wanted::tokenizer) {
      if (lacks("tokenizer.json") && lacks("vocab.txt") && lacks("vocab.json")) files.push_back("tokenizer.json");
      return files;
    }
    if (lacks(kConfig)) files.push_back(kConfig);
    if (wanted_ == Wanted::config) return files;
    if (lacks(kWeights) && lacks(kIndex)) {
      files.push_back(kWeights);
    } else if (lacks(kWeights)) {
      for (const std::string& shard : shards_of(cache_.snapshot(commit) / kIndex)) {
        if (lacks(shard)) files.push_back(shard);
      }
    }
    return files;
  }

  // What to do without a network.
  std::string advice(const std::optional<std::string>& cached) const {
    if (!cached) {
      const char* needed = wanted_ == Wanted::config  ? kConfig
                           : wanted_ == Wanted::model ? "config.json, model.safetensors and the tokenizer's files "
                                                        "(tokenizer.json or vocab.txt)"
                                                      : "the tokenizer's files (tokenizer.json or vocab.txt)";
      return str("The cache has nothing of it: copy ", cache_.folder().string(), " from a machine that has it, or put ",
                 needed, " into a directory and pass that instead of ", id_);
    }
    std::string files;
    for (const std::string& file : missing(*cached)) files += str(files.empty() ? "" : ", ", file);
    return str("The cache lacks ", files, ": put ", files.find(',') == std::string::npos ? "it" : "them", " into ",
               cache_.snapshot(*cached).string(), ", or all files of the model into a directory and pass that instead of ",
               id_);
  }

  std::string url(const std::string& revision, const std::string& file) const {
    return str(settings_.endpoint, "/", id_, "/resolve/", escaped(revision), "/", escaped(file));
  }

  HttpResponse ask(const std::string& revision, const std::string& file, int attempts) {
    return patient_head(http_, settings_, url(revision, file), str(id_, ": ", file), attempts);
  }

  std::string ask_for_commit(int attempts) {
    const HttpResponse response = ask(revision_, kConfig, attempts);
    const std::string* code = response.header("x-error-code");
    if (code && *code == "RevisionNotFound") {
      throw InvalidArgument(str(id_, ": has no revision \"", revision_, "\" on ", settings_.endpoint));
    }
    const std::string* commit = response.header("x-repo-commit");
    const bool found = response.status == 200 || response.is_redirect() || (response.status == 404 && commit);
    if (!found) throw InvalidArgument(str(id_, ": ", status_advice(response, settings_)));
    if (!commit || plain_etag(*commit) != *commit) {
      throw IoError(
          str(id_, ": ", response.url,
              " does not answer like a hub (no X-Repo-Commit); check HF_ENDPOINT, and whether a proxy answers instead"));
    }
    first_answer_ = response;
    return *commit;
  }

  void fetch_all(const std::string& commit) {
    const bool has_config = fetch(commit, kConfig);
    if (wanted_ != Wanted::config)
      for (const char* file : kTokenizerFiles) fetch(commit, file);
    if (wanted_ == Wanted::tokenizer) return;
    if (!has_config) throw InvalidArgument(str(id_, ": has no config.json: it is not a model of transformers"));
    if (wanted_ == Wanted::config || fetch(commit, kWeights)) return;
    if (!fetch(commit, kIndex)) {
      throw InvalidArgument(str(
          id_,
          ": has no weights in the safetensors format. If it has a pytorch_model.bin, convert it once: python -c \"from ",
          "transformers import AutoModel; AutoModel.from_pretrained('", id_,
          "').save_pretrained('DIRECTORY', safe_serialization=True)\", and its tokenizer likewise, and pass DIRECTORY"));
    }
    for (const std::string& shard : shards_of(cache_.snapshot(commit) / kIndex)) {
      if (!fetch(commit, shard))
        throw InvalidArgument(str(id_, ": ", kIndex, " names ", shard, ", which the hub does not have"));
    }
  }

  // Whether the commit has this file, which is then in the snapshot.
  bool fetch(const std::string& commit, const std::string& file) {
    if (cache_.has(commit, file)) return true;
    if (cache_.is_known_absent(commit, file)) return false;
    const HttpResponse response = file == kConfig && first_answer_ ? *first_answer_ : ask(commit, file, settings_.attempts);
    if (response.status == 404) {
      cache_.note_absent(commit, file);
      return false;
    }
    if (response.status != 200 && !response.is_redirect())
      throw InvalidArgument(str(id_, ": ", file, ": ", status_advice(response, settings_)));
    store(commit, describe(commit, file, response));
    return true;
  }

  RemoteFile describe(const std::string& commit, const std::string& file, const HttpResponse& response) const {
    RemoteFile remote;
    remote.url = url(commit, file);
    remote.name = file;
    const std::string* linked = response.header("x-linked-etag");
    const std::string* etag = linked ? linked : response.header("etag");
    const std::string* linked_size = response.header("x-linked-size");
    const std::string* size = linked_size ? linked_size : response.header("content-length");
    if (etag) remote.etag = plain_etag(*etag);
    if (!linked && etag && etag->starts_with('"')) remote.if_range = *etag;
    const bool has_size = size && std::from_chars(size->data(), size->data() + size->size(), remote.bytes).ec == std::errc();
    if (remote.etag.empty() || !has_size) {
      throw IoError(str(id_, ": ", response.url, " does not tell the etag and the size of ", file,
                        "; check HF_ENDPOINT, and whether a proxy answers instead"));
    }
    return remote;
  }

  void store(const std::string& commit, const RemoteFile& remote) {
    cache_.make_folders(commit);
    const fs::path blob = cache_.blob(remote.etag), incomplete = cache_.incomplete(remote.etag);
    const FileLock lock(cache_.lock(remote.etag), incomplete, settings_.lock_timeout);
    if (!fs::exists(blob)) {
      download(http_, settings_, remote, incomplete);
      std::error_code error;
      fs::rename(incomplete, blob, error);
      if (error) throw IoError(write_failure(blob, error.value()));
      sync_folder(blob.parent_path());
    }
    if (!cache_.has(commit, remote.name)) cache_.link(commit, remote.name, remote.etag);
  }

  std::string id_;
  const HubSettings& settings_;
  std::string revision_;
  Wanted wanted_;
  Http http_;
  ModelCache cache_;
  std::optional<HttpResponse> first_answer_;
};

// As the hub permits them: org/name or name, of letters, digits and single - _ . in between.
bool is_id(const std::string& text) {
  const auto is_part = [](std::string_view part) {
    const auto is_allowed = [](unsigned char c) { return std::isalnum(c) || c == '-' || c == '_' || c == '.'; };
    return !part.empty() && std::all_of(part.begin(), part.end(), is_allowed) &&
           std::string_view("-.").find(part.front()) == part.npos && std::string_view("-.").find(part.back()) == part.npos &&
           part.find("--") == part.npos && part.find("..") == part.npos;
  };
  const size_t slash = text.find('/');
  const std::string_view view = text;
  return text.size() <= 96 &&
         (slash == text.npos ? is_part(view) : is_part(view.substr(0, slash)) && is_part(view.substr(slash + 1)));
}

// It becomes a path below refs/.
bool is_revision(const std::string& text) {
  if (text.empty() || text.front() == '/' || text.find('\0') != text.npos) return false;
  const fs::path path(text);
  return std::none_of(path.begin(), path.end(),
                      [](const fs::path& part) { return part == ".." || part == "." || part.empty(); });
}

fs::path find_directory(const std::string& name, const HubSettings& settings, const std::string& revision, Wanted wanted) {
  if (fs::is_directory(name)) {
    if (wanted != Wanted::tokenizer && !fs::exists(fs::path(name) / kConfig))
      throw InvalidArgument(str(name, ": this directory has no config.json"));
    return name;
  }
  if (!is_id(name)) {
    throw InvalidArgument(str("\"", name, "\" is neither a directory nor the name of a model on the hub (org/name)"));
  }
  if (!is_revision(revision))
    throw InvalidArgument(str("\"", revision, "\" is not a revision: a branch, a tag or a commit"));
  return HubModel(name, settings, revision, wanted).directory();
}

}  // namespace

fs::path model_directory(const std::string& name_or_path, const HubSettings& settings, const std::string& revision) {
  return find_directory(name_or_path, settings, revision, Wanted::model);
}

fs::path config_directory(const std::string& name_or_path, const HubSettings& settings, const std::string& revision) {
  return find_directory(name_or_path, settings, revision, Wanted::config);
}

fs::path tokenizer_directory(const std::string& name_or_path, const HubSettings& settings, const std::string& revision) {
  return find_directory(name_or_path, settings, revision, Wanted::tokenizer);
}

}  // namespace trireme::trainer
