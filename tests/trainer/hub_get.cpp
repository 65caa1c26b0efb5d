// Finds or downloads a model or a dataset for tests, by the environment's settings, and prints where it is.
//
//   hub_get [--FIELD=NUMBER ...] [--progress]
//           model NAME [REVISION] | config NAME | tokenizer NAME | dataset NAME train|validation [CONFIG]
//
// FIELD is one of HubSettings: attempts, first_pause_ms, longest_pause, lock_timeout.
#include <functional>
#include <iostream>
#include <map>
#include <string>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/trainer/hub/hub.h"

using namespace trireme::trainer;

static void set(HubSettings& settings, const std::string& flag) {
  if (flag == "--progress") {
    settings.progress = [](const HubProgress& at) {
      std::cerr << "progress " << at.file << ' ' << at.bytes << ' ' << at.total << std::endl;
    };
    return;
  }
  const size_t equals = flag.find('=');
  const int number = std::stoi(flag.substr(equals + 1));
  const std::map<std::string, std::function<void()>> fields = {
      {"--attempts", [&] { settings.attempts = number; }},
      {"--first_pause_ms", [&] { settings.first_pause = std::chrono::milliseconds(number); }},
      {"--longest_pause", [&] { settings.longest_pause = std::chrono::seconds(number); }},
      {"--lock_timeout", [&] { settings.lock_timeout = std::chrono::seconds(number); }},
  };
  fields.at(flag.substr(0, equals))();
}

static std::filesystem::path find(const std::vector<std::string>& words, const HubSettings& settings) {
  if (words.at(0) == "model") return model_directory(words.at(1), settings, words.size() > 2 ? words[2] : "main");
  if (words.at(0) == "config") return config_directory(words.at(1), settings);
  if (words.at(0) == "tokenizer") return tokenizer_directory(words.at(1), settings);
  return dataset_file(words.at(1), words.at(2) == "train", settings, words.size() > 3 ? words[3] : "");
}

int main(int count, char** arguments) {
  std::vector<std::string> words(arguments + 1, arguments + count);
  try {
    HubSettings settings = HubSettings::from_environment();
    while (words.at(0).starts_with("--")) {
      set(settings, words[0]);
      words.erase(words.begin());
    }
    std::cout << find(words, settings).string() << std::endl;
  } catch (const trireme::InvalidArgument& error) {
    std::cerr << "InvalidArgument: " << error.what() << '\n';
    return 1;
  } catch (const trireme::IoError& error) {
    std::cerr << "IoError: " << error.what() << '\n';
    return 1;
  } catch (const trireme::Timeout& error) {
    std::cerr << "Timeout: " << error.what() << '\n';
    return 1;
  }
}
