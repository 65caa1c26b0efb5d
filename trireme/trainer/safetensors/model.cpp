#include <algorithm>
#include <unordered_map>

#include "trireme/base/error.h"
#include "trireme/trainer/json/json.h"
#include "trireme/trainer/safetensors/safetensors.h"

namespace trireme::trainer {
namespace {

constexpr const char* kSingleFile = "model.safetensors";
constexpr const char* kIndexFile = "model.safetensors.index.json";

[[noreturn]] void refuse_directory(const std::filesystem::path& directory) {
  const std::string name = directory.string();
  for (const char* pickled : {"pytorch_model.bin", "pytorch_model.bin.index.json"}) {
    if (!std::filesystem::exists(directory / pickled)) continue;
    throw InvalidArgument(str(
        name, ": has its weights in ", pickled, ", a pickle, which only Python can read. Convert it once: python -c \"from ",
        "transformers import AutoModel; AutoModel.from_pretrained('", name, "').save_pretrained('", name,
        "-safetensors', safe_serialization=True)\" (the class of the model's task instead of AutoModel keeps its head)"));
  }
  throw InvalidArgument(str(name, ": has neither ", kSingleFile, " nor ", kIndexFile));
}

// An index may come from anybody: what it names must lie beside it.
bool is_plain_name(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string::npos &&
         name.find('\0') == std::string::npos;
}

}  // namespace

std::map<std::string, std::string> read_safetensors_index(const std::filesystem::path& path) {
  const Json document = read_json(path);
  const JsonPlace shards = JsonPlace(document, path.string())["weight_map"];
  std::map<std::string, std::string> shard_of;
  for (const auto& [tensor, value] : shards.object().items()) {
    const JsonPlace shard(value, str(shards.where(), "[\"", tensor, "\"]"));
    if (!is_plain_name(shard.string()))
      shard.refuse(str("\"", shard.string(), "\" is not the name of a file beside the index"));
    shard_of.emplace(tensor, shard.string());
  }
  return shard_of;
}

SafetensorsModel::SafetensorsModel(const std::filesystem::path& directory) {
  if (std::filesystem::exists(directory / kSingleFile)) {
    files_.emplace_back(directory / kSingleFile);
    for (const TensorEntry& entry : files_.front().entries()) places_.emplace(entry.name, Place{&entry, 0});
  } else if (std::filesystem::exists(directory / kIndexFile)) {
    add_shards(directory / kIndexFile);
  } else {
    refuse_directory(directory);
  }
}

void SafetensorsModel::add_shards(const std::filesystem::path& index) {
  const auto shard_of = read_safetensors_index(index);
  std::map<std::string, size_t> numbers;
  for (const auto& [tensor, shard] : shard_of) numbers.emplace(shard, 0);
  for (auto& [shard, number] : numbers) {
    const auto path = index.parent_path() / shard;
    if (!std::filesystem::exists(path)) throw InvalidArgument(str(index.string(), ": names ", shard, ", which is missing"));
    number = files_.size();
    files_.emplace_back(path);
  }
  // Entries stay where they are when their files move.
  std::vector<std::unordered_map<std::string_view, const TensorEntry*>> held(files_.size());
  for (size_t file = 0; file < files_.size(); ++file) {
    for (const TensorEntry& entry : files_[file].entries()) held[file].emplace(entry.name, &entry);
  }
  for (const auto& [tensor, shard] : shard_of) {
    const size_t file = numbers[shard];
    const auto found = held[file].find(tensor);
    if (found == held[file].end()) {
      throw InvalidArgument(str(index.string(), ": says that tensor \"", tensor, "\" is in ", shard, ", but it is not"));
    }
    places_.emplace(tensor, Place{found->second, file});
  }
}

const TensorEntry* SafetensorsModel::find(std::string_view name) const {
  const auto found = places_.find(name);
  return found == places_.end() ? nullptr : found->second.entry;
}

std::vector<std::string> SafetensorsModel::names() const {
  std::vector<std::string> all;
  for (const auto& [name, place] : places_) all.push_back(name);
  return all;
}

const std::filesystem::path& SafetensorsModel::file_of(std::string_view name) const {
  const auto found = places_.find(name);
  TRIREME_ENFORCE(found != places_.end(), name);
  return files_[found->second.file].path();
}

}  // namespace trireme::trainer
