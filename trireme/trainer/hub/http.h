// HTTP by libcurl: GET and HEAD, redirects followed under our own eyes, because of the token.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/trainer/hub/hub.h"

namespace trireme::trainer {

// The network failed, or the server said that it cannot serve now. What the cache has may do.
class HubUnreachable : public IoError {
 public:
  using IoError::IoError;
};

struct HttpResponse {
  int status = 0;
  std::map<std::string, std::string> headers;  // names in lower case
  std::string url;                             // that answered, after redirects
  std::optional<std::chrono::seconds> retry_after;

  const std::string* header(const std::string& name) const;
  bool is_redirect() const;
};

// One connection at a time, kept open between requests. For one thread. Every request has limits of time, by the settings.
class Http {
 public:
  explicit Http(const HubSettings& settings);
  ~Http();

  // Follows redirects, but for one that tells of the content it leads to (X-Linked-Etag): such URLs expire, so that is
  // returned, and the download gets a fresh one. Keeps what the hub told on the way (X-Repo-Commit). HubUnreachable.
  HttpResponse head(const std::string& url);

  using Sink = std::function<void(const HttpResponse& response, const char* data, size_t bytes)>;
  // Follows redirects; what comes with 200 or 206 goes to the sink, whose exceptions come through. HubUnreachable if there
  // was no answer or its content broke off.
  HttpResponse get(const std::string& url, const std::vector<std::string>& headers, const Sink& sink);

 private:
  struct Request;
  HttpResponse perform(Request& request);

  const HubSettings& settings_;
  std::unique_ptr<void, void (*)(void*)> curl_;
};

// The URL that a redirect leads to. IoError if it leads nowhere, or from https to http.
std::string redirect_target(const HttpResponse& response);
// scheme://host:port
std::string origin_of(const std::string& url);
std::string escaped(const std::string& url_part);  // '/' too

inline constexpr int kMaxRedirects = 10;

// Counts attempts that brought nothing and waits between them.
class Retry {
 public:
  Retry(const HubSettings& settings, std::string what, int attempts)
      : settings_(settings), what_(std::move(what)), attempts_(attempts) {}

  // After an attempt that failed: waits, longer each time, or as long as the server asked for. HubUnreachable if there were
  // enough attempts, or it asks for too long.
  void pause(const std::string& why, std::optional<std::chrono::seconds> asked = {});
  void advanced() { failed_ = 0; }

 private:
  const HubSettings& settings_;
  std::string what_;
  int attempts_;
  int failed_ = 0;
};

// 408, 429 and the errors of servers that are down or in trouble.
bool may_pass(int status);

// http.head(url), until there is an answer that a later attempt would not better. HubUnreachable.
HttpResponse patient_head(Http& http, const HubSettings& settings, const std::string& url, const std::string& what,
                          int attempts);

}  // namespace trireme::trainer
