#include "trireme/trainer/hub/http.h"

#include <curl/curl.h>

#include <algorithm>
#include <cctype>
#include <mutex>
#include <random>
#include <thread>

#include "trireme/base/deadline.h"
#include "trireme/base/log.h"

namespace trireme::trainer {
namespace {

CURL* new_handle() {
  static std::once_flag once;
  std::call_once(once, [] { curl_global_init(CURL_GLOBAL_DEFAULT); });
  CURL* handle = curl_easy_init();
  if (!handle) throw IoError("libcurl cannot be initialised");
  return handle;
}

using Url = std::unique_ptr<CURLU, decltype(&curl_url_cleanup)>;

Url parse_url(const std::string& text) {
  Url url(curl_url(), curl_url_cleanup);
  if (const CURLUcode code = curl_url_set(url.get(), CURLUPART_URL, text.c_str(), 0); code != CURLUE_OK) {
    throw IoError(str("\"", text, "\" is not a URL: ", curl_url_strerror(code)));
  }
  return url;
}

std::string part_of(const Url& url, CURLUPart part, unsigned flags = 0) {
  char* text = nullptr;
  if (curl_url_get(url.get(), part, &text, flags) != CURLUE_OK) return "";
  std::string copy = text;
  curl_free(text);
  return copy;
}

std::string trimmed(std::string text) {
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back()))) text.pop_back();
  const size_t begin = text.find_first_not_of(" \t");
  return begin == std::string::npos ? "" : text.substr(begin);
}

}  // namespace

const std::string* HttpResponse::header(const std::string& name) const {
  const auto found = headers.find(name);
  return found == headers.end() ? nullptr : &found->second;
}

bool HttpResponse::is_redirect() const {
  return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

std::string origin_of(const std::string& text) {
  const Url url = parse_url(text);
  return str(part_of(url, CURLUPART_SCHEME), "://", part_of(url, CURLUPART_HOST), ":",
             part_of(url, CURLUPART_PORT, CURLU_DEFAULT_PORT));
}

std::string redirect_target(const HttpResponse& response) {
  const std::string* location = response.header("location");
  if (!location) throw IoError(str(response.url, ": a redirect (", response.status, ") without a Location"));
  const Url url = parse_url(response.url);
  if (const CURLUcode code = curl_url_set(url.get(), CURLUPART_URL, location->c_str(), 0); code != CURLUE_OK) {
    throw IoError(str(response.url, ": redirects to \"", *location, "\": ", curl_url_strerror(code)));
  }
  const std::string scheme = part_of(url, CURLUPART_SCHEME);
  if (scheme != "https" && (scheme != "http" || response.url.starts_with("https:"))) {
    throw IoError(str(response.url, ": redirects to ", *location, ", which is not https"));
  }
  return part_of(url, CURLUPART_URL);
}

std::string escaped(const std::string& text) {
  char* result = curl_easy_escape(nullptr, text.c_str(), static_cast<int>(text.size()));
  if (!result) throw IoError("libcurl cannot escape a URL");
  std::string copy = result;
  curl_free(result);
  return copy;
}

// All that libcurl's callbacks need. They are C: an exception must not cross it.
struct Http::Request {
  std::string url;
  bool head = false;
  std::vector<std::string> headers;
  const Sink* sink = nullptr;
  HttpResponse response;
  std::exception_ptr failure;
  std::chrono::seconds stall_timeout{0};
  Deadline stalled = Deadline::never();

  // Called about once a second. Ends the transfer if nothing has come for too long.
  static int on_tick(void* self, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
    return static_cast<Request*>(self)->stalled.passed();
  }
  static size_t on_header(char* data, size_t, size_t bytes, void* self) {
    return static_cast<Request*>(self)->add_header({data, bytes});
  }
  static size_t on_body(char* data, size_t, size_t bytes, void* self) {
    return static_cast<Request*>(self)->add_body(data, bytes);
  }

  size_t add_header(const std::string& line) {
    if (!head) stalled = Deadline::after(stall_timeout);
    if (line.starts_with("HTTP/")) {  // also after an interim answer: what counts is the last one
      response.headers.clear();
      const size_t space = line.find(' ');
      response.status = space == std::string::npos ? 0 : std::atoi(line.c_str() + space);
    } else if (const size_t colon = line.find(':'); colon != std::string::npos) {
      std::string name = line.substr(0, colon);
      std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
      response.headers[name] = trimmed(line.substr(colon + 1));
    }
    return line.size();
  }

  size_t add_body(const char* data, size_t bytes) {
    stalled = Deadline::after(stall_timeout);
    if (response.status != 200 && response.status != 206) return bytes;  // a page about the error
    try {
      (*sink)(response, data, bytes);
      return bytes;
    } catch (...) {
      failure = std::current_exception();
      return 0;
    }
  }
};

Http::Http(const HubSettings& settings) : settings_(settings), curl_(new_handle(), curl_easy_cleanup) {}
Http::~Http() = default;

HttpResponse Http::perform(Request& request) {
  CURL* curl = curl_.get();
  curl_easy_reset(curl);  // keeps the connections
  char error[CURL_ERROR_SIZE] = "";
  curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, error);
  curl_easy_setopt(curl, CURLOPT_URL, request.url.c_str());
  curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(curl, CURLOPT_USERAGENT, "trireme/" TRIREME_VERSION);
  curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, static_cast<long>(settings_.answer_timeout.count()));
  if (request.head) {
    curl_easy_setopt(curl, CURLOPT_NOBODY, 1L);
    curl_easy_setopt(curl, CURLOPT_TIMEOUT, static_cast<long>(settings_.answer_timeout.count()));
  } else {
    // Not CURLOPT_LOW_SPEED_TIME: it looks at an average, which a good beginning keeps up for a while.
    curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, &Request::on_tick);
    curl_easy_setopt(curl, CURLOPT_XFERINFODATA, &request);
    request.stall_timeout = settings_.stall_timeout;
    request.stalled = Deadline::after(settings_.answer_timeout + settings_.stall_timeout);
  }
  if (!settings_.ca_bundle.empty()) curl_easy_setopt(curl, CURLOPT_CAINFO, settings_.ca_bundle.c_str());

  std::unique_ptr<curl_slist, decltype(&curl_slist_free_all)> list(nullptr, curl_slist_free_all);
  const auto add = [&](const std::string& line) {
    curl_slist* longer = curl_slist_append(list.get(), line.c_str());
    if (!longer) throw IoError("libcurl has no memory for a header");
    static_cast<void>(list.release());
    list.reset(longer);
  };
  add("Accept-Encoding: identity");  // sizes and ranges are those of the file
  for (const std::string& line : request.headers) add(line);
  // Whoever else is asked (a CDN that a redirect leads to, the host of a dataset) does not get it.
  if (!settings_.token.empty() && origin_of(request.url) == origin_of(settings_.endpoint))
    add("Authorization: Bearer " + settings_.token);
  curl_easy_setopt(curl, CURLOPT_HTTPHEADER, list.get());

  curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, &Request::on_header);
  curl_easy_setopt(curl, CURLOPT_HEADERDATA, &request);
  curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, &Request::on_body);
  curl_easy_setopt(curl, CURLOPT_WRITEDATA, &request);
  request.response.url = request.url;

  const CURLcode code = curl_easy_perform(curl);
  if (request.failure) std::rethrow_exception(request.failure);
  if (code == CURLE_PEER_FAILED_VERIFICATION || code == CURLE_SSL_CACERT_BADFILE) {
    throw IoError(
        str(request.url, ": ", *error ? error : curl_easy_strerror(code),
            "; if a proxy of yours stands in between, name its certificates in REQUESTS_CA_BUNDLE or CURL_CA_BUNDLE"));
  }
  if (code == CURLE_ABORTED_BY_CALLBACK)
    throw HubUnreachable(str(request.url, ": nothing came for ", settings_.stall_timeout.count(), " s"));
  if (code != CURLE_OK) throw HubUnreachable(str(request.url, ": ", *error ? error : curl_easy_strerror(code)));
  curl_off_t seconds = 0;
  if (curl_easy_getinfo(curl, CURLINFO_RETRY_AFTER, &seconds) == CURLE_OK && seconds > 0) {
    request.response.retry_after = std::chrono::seconds(seconds);
  }
  return std::move(request.response);
}

HttpResponse Http::head(const std::string& url) {
  std::map<std::string, std::string> told;
  std::string next = url;
  for (int redirects = 0; redirects <= kMaxRedirects; ++redirects) {
    Request request;
    request.url = next;
    request.head = true;
    HttpResponse response = perform(request);
    for (const char* name : {"x-repo-commit", "x-linked-etag", "x-linked-size"}) {
      if (const std::string* value = response.header(name)) told[name] = *value;
    }
    if (!response.is_redirect() || response.header("x-linked-etag")) {
      response.headers.merge(told);
      return response;
    }
    next = redirect_target(response);
  }
  throw IoError(str(url, ": redirects without end"));
}

HttpResponse Http::get(const std::string& url, const std::vector<std::string>& headers, const Sink& sink) {
  std::string next = url;
  for (int redirects = 0; redirects <= kMaxRedirects; ++redirects) {
    Request request;
    request.url = next;
    request.headers = headers;
    request.sink = &sink;
    HttpResponse response = perform(request);
    if (!response.is_redirect()) return response;
    next = redirect_target(response);
  }
  throw IoError(str(url, ": redirects without end"));
}

bool may_pass(int status) {
  return status == 408 || status == 429 || status == 500 || status == 502 || status == 503 || status == 504;
}

void Retry::pause(const std::string& why, std::optional<std::chrono::seconds> asked) {
  if (++failed_ >= attempts_) {
    throw HubUnreachable(
        str(what_, ": ", why, failed_ > 1 ? str(" (given up after ", failed_, " attempts)") : std::string()));
  }
  if (asked && *asked > settings_.longest_pause) {
    throw HubUnreachable(str(what_, ": ", why, "; the server asks to wait for ", asked->count(), " s: try again then"));
  }
  // Up to a quarter more, so that processes that failed together do not come back together.
  static thread_local std::minstd_rand random{std::random_device{}()};
  const auto doubled = settings_.first_pause * (1 << std::min(failed_ - 1, 4));
  const auto jitter = doubled * static_cast<int>(random() % 256) / 1024;
  const std::chrono::milliseconds pause =
      std::max<std::chrono::milliseconds>(doubled + jitter, asked.value_or(std::chrono::seconds(0)));
  log(LogLevel::warn, str(what_, ": ", why, "; again in ", pause.count(), " ms"));
  std::this_thread::sleep_for(pause);
}

HttpResponse patient_head(Http& http, const HubSettings& settings, const std::string& url, const std::string& what,
                          int attempts) {
  for (Retry retry(settings, what, attempts);;) {
    std::string why;
    std::optional<std::chrono::seconds> asked;
    try {
      HttpResponse response = http.head(url);
      if (!may_pass(response.status)) return response;
      why = str(response.url, " answered ", response.status);
      asked = response.retry_after;
    } catch (const HubUnreachable& error) {
      why = error.what();
    }
    retry.pause(why, asked);
  }
}

}  // namespace trireme::trainer
