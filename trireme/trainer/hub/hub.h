// Models and datasets by name: found in Hugging Face's cache, or downloaded into it as huggingface_hub would, so that the
// two share what they have. docs/trainer.md has the layout and every variable.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

namespace trireme::trainer {

struct HubProgress {
  std::string file;  // "model.safetensors"
  uint64_t bytes = 0, total = 0;
};

struct HubSettings {
  std::string endpoint = "https://huggingface.co";  // http or https, without a slash at the end
  std::string token;                                // empty: none
  std::filesystem::path token_path;                 // where it was looked for, for messages
  std::filesystem::path cache_dir;                  // of models
  std::filesystem::path datasets_dir;
  std::string squad_url;
  std::string ca_bundle;          // certificates to trust; empty: the system's
  bool offline = false;           // no model is asked for
  bool datasets_offline = false;  // no dataset

  std::chrono::seconds answer_timeout{10};     // to connect, and for an answer without content
  std::chrono::seconds stall_timeout{10};      // without a byte of content
  int attempts = 5;                            // in a row that bring nothing
  std::chrono::milliseconds first_pause{500};  // doubled from attempt to attempt
  std::chrono::seconds longest_pause{300};     // that a server may ask for
  std::chrono::seconds lock_timeout{600};      // for another process's download that does not advance

  std::function<void(const HubProgress&)> progress;  // a few times a second, from the thread that called

  // From Hugging Face's variables (HF_ENDPOINT, HF_TOKEN, HF_HOME ...) and TRIREME_SQUAD_URL. `cache_dir` and `token` are
  // the flags of those names: where not empty, they outrank the variables. InvalidArgument if one is malformed.
  static HubSettings from_environment(const std::filesystem::path& cache_dir = {}, const std::string& token = "");
};

// The directory of a model: `name_or_path` itself if it is one with a config.json, else the snapshot of the hub's model of
// that name ("org/name") in the cache, with config.json, the tokenizer's files and the weights. Downloads what is missing;
// what is complete is used as it is if the hub cannot be reached. Several processes may call it at once: one of them
// downloads a file, the others wait for it. A process that is killed leaves what the next one continues.
// InvalidArgument: there is no such model, or it has no weights that we read. IoError, Timeout: the network, the disk; the
// message says what to do, and nothing half-done is ever found under a file's own name.
std::filesystem::path model_directory(const std::string& name_or_path, const HubSettings& settings,
                                      const std::string& revision = "main");

// Likewise, with config.json alone.
std::filesystem::path config_directory(const std::string& name_or_path, const HubSettings& settings,
                                       const std::string& revision = "main");

// Likewise, without weights, for a tokenizer of another name. Its directory need not have a config.json.
std::filesystem::path tokenizer_directory(const std::string& name_or_path, const HubSettings& settings,
                                          const std::string& revision = "main");

// "squad" or "squad_v2" (also as rajpurkar/squad and rajpurkar/squad_v2; `config` is empty or that dataset's own), else
// InvalidArgument.
void require_dataset(const std::string& dataset, const std::string& config = "");

// The official JSON file of such a dataset, for training or for validation.
std::filesystem::path dataset_file(const std::string& dataset, bool train, const HubSettings& settings,
                                   const std::string& config = "");

}  // namespace trireme::trainer
