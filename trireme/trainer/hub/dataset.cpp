// SQuAD as its authors publish it. The files never change, so one that is there is not asked for again.
#include <charconv>
#include <fstream>

#include "trireme/ccl/bootstrap/sha256.h"
#include "trireme/trainer/files/files.h"
#include "trireme/trainer/hub/cache.h"
#include "trireme/trainer/hub/content_check.h"
#include "trireme/trainer/hub/download.h"
#include "trireme/trainer/hub/file_lock.h"
#include "trireme/trainer/hub/hub.h"

namespace trireme::trainer {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFolder = "trireme-squad";

struct Dataset {
  const char* name;
  const char* config;
  const char* version;
};
constexpr Dataset kDatasets[] = {{"squad", "plain_text", "v1.1"}, {"squad_v2", "squad_v2", "v2.0"}};

const Dataset& find_dataset(const std::string& name, const std::string& config) {
  for (const Dataset& dataset : kDatasets) {
    if (name != dataset.name && name != str("rajpurkar/", dataset.name)) continue;
    if (config.empty() || config == dataset.config) return dataset;
    throw InvalidArgument(
        str("dataset ", name, " has no configuration \"", config, "\"; its only one is \"", dataset.config, "\""));
  }
  throw InvalidArgument(
      str("dataset \"", name,
          "\" is not known: squad and squad_v2 are. For data of your own pass --train_file and --validation_file"));
}

RemoteFile ask(Http& http, const HubSettings& settings, const std::string& name) {
  RemoteFile remote;
  remote.url = str(settings.squad_url, "/", name);
  remote.name = name;
  const HttpResponse response = patient_head(http, settings, remote.url, name, settings.attempts);
  if (response.status != 200)
    throw IoError(str(name, ": ", response.url, " answered ", response.status, "; check TRIREME_SQUAD_URL"));
  const std::string* size = response.header("content-length");
  if (!size || std::from_chars(size->data(), size->data() + size->size(), remote.bytes).ec != std::errc()) {
    throw IoError(str(name, ": ", response.url, " does not tell the file's size"));
  }
  if (const std::string* etag = response.header("etag"); etag && etag->starts_with('"')) remote.if_range = *etag;
  return remote;
}

// Named after the version that it is a part of: the beginning of another one is never continued.
fs::path incomplete_path(const fs::path& path, const RemoteFile& remote) {
  const ccl::Digest version = ccl::sha256(str(remote.if_range, " ", remote.bytes));
  return str(path.string(), ".", hexadecimal(version.data(), 8), ".incomplete");
}

// Its etag is no hash. A page that asks to log in to some network must not stay as the dataset.
void refuse_what_is_not_json(const fs::path& incomplete, const RemoteFile& remote) {
  if (std::ifstream(incomplete).peek() == '{') return;
  fs::remove(incomplete);
  throw IoError(str(remote.name, ": what ", remote.url,
                    " sent is not JSON; check TRIREME_SQUAD_URL, and whether a proxy answers instead"));
}

}  // namespace

void require_dataset(const std::string& dataset, const std::string& config) { find_dataset(dataset, config); }

fs::path dataset_file(const std::string& dataset, bool train, const HubSettings& settings, const std::string& config) {
  const std::string name = str(train ? "train" : "dev", "-", find_dataset(dataset, config).version, ".json");
  const fs::path path = settings.datasets_dir / kFolder / name;
  if (fs::exists(path)) return path;
  const std::string advice =
      str("Put ", name, " into ", path.parent_path().string(), ", or pass --train_file and --validation_file");
  if (settings.datasets_offline)
    throw IoError(str(name, ": HF_HUB_OFFLINE, TRANSFORMERS_OFFLINE or HF_DATASETS_OFFLINE forbids to ask ",
                      settings.squad_url, ". ", advice));
  try {
    Http http(settings);
    const RemoteFile remote = ask(http, settings, name);
    make_folder(path.parent_path());
    const fs::path incomplete = incomplete_path(path, remote);
    const FileLock lock(path.string() + ".lock", incomplete, settings.lock_timeout);
    if (fs::exists(path)) return path;
    download(http, settings, remote, incomplete);
    refuse_what_is_not_json(incomplete, remote);
    std::error_code error;
    fs::rename(incomplete, path, error);
    if (error) throw IoError(write_failure(path, error.value()));
    sync_folder(path.parent_path());
    return path;
  } catch (const HubUnreachable& error) {
    throw IoError(str(error.what(), ". ", advice));
  }
}

}  // namespace trireme::trainer
