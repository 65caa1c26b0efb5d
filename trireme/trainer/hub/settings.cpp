// What the environment says, by the rules of huggingface_hub and transformers: which variable outranks which, `~` and $NAME
// inside paths.
#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <fstream>
#include <optional>

#include "trireme/base/env.h"
#include "trireme/base/error.h"
#include "trireme/trainer/hub/hub.h"

namespace trireme::trainer {
namespace {

namespace fs = std::filesystem;

// The first of them that is set and not empty.
std::string variable(std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (const char* value = std::getenv(name); value && *value) return value;
  }
  return "";
}

bool is_name_character(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

// $NAME and ${NAME}; what is not set stays as it is written. Containers are given paths that no shell has seen.
std::string expand_variables(const std::string& text) {
  std::string expanded;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool braced = text.compare(i, 2, "${") == 0;
    const size_t begin = i + (braced ? 2 : 1);
    size_t end = begin;
    while (text[i] == '$' && end < text.size() && is_name_character(text[end])) ++end;
    const char* value = end > begin ? std::getenv(text.substr(begin, end - begin).c_str()) : nullptr;
    if (!value || (braced && text.compare(end, 1, "}") != 0)) {
      expanded += text[i];
    } else {
      expanded += value;
      i = end - (braced ? 0 : 1);
    }
  }
  return expanded;
}

fs::path home() {
  if (const std::string directory = variable({"HOME"}); !directory.empty()) return directory;
  // As in Python: who has no HOME may have an entry in passwd. Who has neither may need no downloads.
  const passwd* user = ::getpwuid(::getuid());
  return user != nullptr && user->pw_dir != nullptr ? user->pw_dir : "/";
}

fs::path path_of(const std::string& text) {
  if (text == "~" || text.starts_with("~/")) return home() / expand_variables(text.substr(std::min<size_t>(2, text.size())));
  return expand_variables(text);
}

fs::path huggingface_home() {
  if (const std::string own = variable({"HF_HOME"}); !own.empty()) return path_of(own);
  if (const std::string caches = variable({"XDG_CACHE_HOME"}); !caches.empty()) return path_of(caches) / "huggingface";
  return home() / ".cache" / "huggingface";
}

fs::path directory_of(std::initializer_list<const char*> names, const char* below_home) {
  const std::string named = variable(names);
  return named.empty() ? huggingface_home() / below_home : path_of(named);
}

bool is_true(std::string value) {
  std::transform(value.begin(), value.end(), value.begin(), [](unsigned char c) { return std::toupper(c); });
  return value == "1" || value == "ON" || value == "YES" || value == "TRUE";
}

std::string trimmed(std::string text) {
  const auto is_space = [](unsigned char c) { return std::isspace(c); };
  text.erase(std::find_if_not(text.rbegin(), text.rend(), is_space).base(), text.end());
  text.erase(text.begin(), std::find_if_not(text.begin(), text.end(), is_space));
  return text;
}

std::string read_token(const fs::path& path) {
  std::string token = trimmed(variable({"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"}));
  if (token.empty()) {
    std::ifstream file(path);
    std::getline(file, token);
    token = trimmed(token);
  }
  // It becomes a line of the request.
  if (std::any_of(token.begin(), token.end(), [](unsigned char c) { return c <= ' ' || c >= 127; })) {
    throw InvalidArgument(
        str("the token for the hub (HF_TOKEN, or the file ", path.string(), ") contains a character that no token has"));
  }
  return token;
}

std::string base_url(const std::string& name, std::string url) {
  while (url.ends_with('/')) url.pop_back();
  if (!url.starts_with("http://") && !url.starts_with("https://")) {
    throw InvalidArgument(str(name, "=", url, ": a URL that begins with https:// or http:// is wanted"));
  }
  return url;
}

void set_seconds(const char* name, std::chrono::seconds& seconds) {
  const std::string text = variable({name});
  if (text.empty()) return;
  if (text.size() > 6 || !std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isdigit(c); }) ||
      std::stoi(text) == 0) {
    throw InvalidArgument(str(name, "=", text, ": a whole number of seconds is wanted"));
  }
  seconds = std::chrono::seconds(std::stoi(text));
}

}  // namespace

HubSettings HubSettings::from_environment(const fs::path& cache_dir, const std::string& token) {
  HubSettings settings;
  if (const std::string endpoint = variable({"HF_ENDPOINT"}); !endpoint.empty())
    settings.endpoint = base_url("HF_ENDPOINT", endpoint);
  settings.squad_url = base_url("TRIREME_SQUAD_URL", env::text("TRIREME_SQUAD_URL"));
  settings.token_path = directory_of({"HF_TOKEN_PATH"}, "token");
  settings.token = token.empty() ? read_token(settings.token_path) : token;
  settings.cache_dir = cache_dir.empty()
                           ? directory_of({"TRANSFORMERS_CACHE", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"}, "hub")
                           : path_of(cache_dir.string());
  settings.datasets_dir =
      cache_dir.empty() ? directory_of({"HF_DATASETS_CACHE"}, "datasets") : path_of(cache_dir.string());
  settings.ca_bundle = variable({"REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE"});
  settings.offline = is_true(variable({"HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"}));
  settings.datasets_offline = settings.offline || is_true(variable({"HF_DATASETS_OFFLINE"}));
  set_seconds("HF_HUB_ETAG_TIMEOUT", settings.answer_timeout);
  set_seconds("HF_HUB_DOWNLOAD_TIMEOUT", settings.stall_timeout);
  return settings;
}

}  // namespace trireme::trainer
