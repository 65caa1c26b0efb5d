#include "trireme/trainer/hub/download.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <vector>

#include "trireme/base/deadline.h"
#include "trireme/base/fd.h"
#include "trireme/trainer/files/files.h"
#include "trireme/trainer/hub/content_check.h"

namespace trireme::trainer {
namespace {

constexpr std::chrono::milliseconds kTellEvery{250};
// An attempt that brought less does not count as progress: a server could go on for ever, a byte at a time.
constexpr uint64_t kAdvanceBytes = 1 << 20;

bool is_strong(const std::string* etag) { return etag && etag->size() > 2 && etag->front() == '"'; }

// "bytes 100-199/200": 100.
std::optional<uint64_t> range_begin(const std::string* content_range) {
  if (!content_range || !content_range->starts_with("bytes ")) return std::nullopt;
  uint64_t begin = 0;
  const char* digits = content_range->data() + 6;
  const auto [end, error] = std::from_chars(digits, content_range->data() + content_range->size(), begin);
  if (error != std::errc() || end == digits) return std::nullopt;
  return begin;
}

class Download {
 public:
  Download(Http& http, const HubSettings& settings, const RemoteFile& file, const std::filesystem::path& incomplete)
      : http_(http),
        settings_(settings),
        file_(file),
        path_(incomplete),
        fd_(::open(incomplete.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666)),
        check_(file.etag, file.bytes),
        validator_(file.if_range) {
    if (!fd_) fail_to_write(errno);
  }

  void run() {
    const bool continued = take_up_what_is_there();
    fetch();
    std::string difference = check_.difference();
    if (!difference.empty() && continued) {
      // What was there may have been wrong already. Once more, all of it.
      begin_again();
      fetch();
      difference = check_.difference();
    }
    if (!difference.empty()) {
      ::unlink(path_.c_str());
      throw IoError(str(file_.name, ": what ", file_.url, " sent is damaged: its ", difference,
                        ". It was deleted; try again, and if it comes again, ", "the fault is the server's or a proxy's"));
    }
    if (::fsync(fd_.get()) != 0) fail_to_write(errno);
  }

 private:
  [[noreturn]] void fail_to_write(int error_number) const { throw IoError(write_failure(path_, error_number)); }

  // Whether an earlier process left something that can be continued; it is read, as the check covers it too.
  bool take_up_what_is_there() {
    struct stat status;
    if (::fstat(fd_.get(), &status) != 0) fail_to_write(errno);
    const uint64_t there = static_cast<uint64_t>(status.st_size);
    if (there == 0) return false;
    if (there > file_.bytes || !(check_.is_possible() || !validator_.empty())) {
      begin_again();
      return false;
    }
    std::vector<char> buffer(1 << 20);
    while (have_ < there) {
      const ssize_t got = ::pread(fd_.get(), buffer.data(), buffer.size(), static_cast<off_t>(have_));
      if (got <= 0) throw IoError(errno_message(str("cannot read ", path_.string()), got < 0 ? errno : EIO));
      check_.update(buffer.data(), static_cast<size_t>(got));
      have_ += static_cast<uint64_t>(got);
    }
    return true;
  }

  void begin_again() {
    if (::ftruncate(fd_.get(), 0) != 0) fail_to_write(errno);
    have_ = 0;
    check_ = ContentCheck(file_.etag, file_.bytes);
  }

  void fetch() {
    Retry retry(settings_, file_.name, settings_.attempts);
    tell(true);
    while (have_ < file_.bytes) {
      const uint64_t before = have_;
      std::string why;
      std::optional<std::chrono::seconds> asked;
      try {
        const HttpResponse response = attempt();
        if (may_pass(response.status)) {
          why = str(response.url, " answered ", response.status);
          asked = response.retry_after;
        } else if (response.status == 416) {  // beyond its end: what is here is longer than what is there
          begin_again();
          why = str(response.url, " has no bytes from ", before, " on");
        } else if (response.status != 200 && response.status != 206) {
          throw IoError(str(file_.name, ": ", status_advice(response, settings_)));
        } else if (have_ < file_.bytes) {
          why = str(response.url, " ended after ", have_, " of ", file_.bytes, " bytes");
        }
      } catch (const HubUnreachable& error) {
        why = error.what();
      }
      if (have_ >= before + kAdvanceBytes) retry.advanced();
      if (have_ < file_.bytes) retry.pause(why, asked);
    }
    tell(true);
  }

  HttpResponse attempt() {
    std::vector<std::string> headers;
    if (have_ > 0 && !check_.is_possible() && validator_.empty()) begin_again();
    if (have_ > 0) {
      headers.push_back(str("Range: bytes=", have_, "-"));
      if (!validator_.empty()) headers.push_back(str("If-Range: ", validator_));
    }
    bool first = true;
    return http_.get(file_.url, headers, [&](const HttpResponse& response, const char* data, size_t bytes) {
      if (std::exchange(first, false)) begin_content(response);
      append(data, bytes);
    });
  }

  void begin_content(const HttpResponse& response) {
    if (response.status == 200 && have_ > 0) begin_again();  // it has changed, or the server knows no ranges
    if (response.status == 206 && range_begin(response.header("content-range")) != have_) {
      begin_again();
      throw HubUnreachable(str(response.url, " sent another range than was asked for"));
    }
    // From now on, only more of the same.
    if (const std::string* etag = response.header("etag"); is_strong(etag)) validator_ = *etag;
  }

  void append(const char* data, size_t bytes) {
    if (bytes > file_.bytes - have_) {
      ::unlink(path_.c_str());
      throw IoError(str(file_.name, ": ", file_.url, " sends more than the ", file_.bytes,
                        " bytes that it announced; the file changed meanwhile, or a proxy answers in its place. Try again"));
    }
    check_.update(data, bytes);
    while (bytes > 0) {
      const ssize_t written = ::pwrite(fd_.get(), data, bytes, static_cast<off_t>(have_));
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) fail_to_write(errno);
      data += written, bytes -= static_cast<size_t>(written), have_ += static_cast<uint64_t>(written);
    }
    tell(false);
  }

  void tell(bool now) {
    if (!settings_.progress || (!now && !tell_.passed())) return;
    settings_.progress({file_.name, have_, file_.bytes});
    tell_ = Deadline::after(kTellEvery);
  }

  Http& http_;
  const HubSettings& settings_;
  const RemoteFile& file_;
  std::filesystem::path path_;
  UniqueFd fd_;
  ContentCheck check_;
  std::string validator_;  // for If-Range
  uint64_t have_ = 0;
  Deadline tell_ = Deadline::after(kTellEvery);
};

}  // namespace

std::string plain_etag(const std::string& etag) {
  std::string plain = etag.starts_with("W/") ? etag.substr(2) : etag;
  std::erase(plain, '"');
  const auto is_safe = [](unsigned char c) {
    return std::isalnum(c) || c == '-' || c == '_' || c == '.' || c == '+' || c == ':' || c == '=';
  };
  const bool is_name =
      !plain.empty() && plain.size() <= 200 && plain.front() != '.' && std::all_of(plain.begin(), plain.end(), is_safe);
  return is_name ? plain : "";
}

void download(Http& http, const HubSettings& settings, const RemoteFile& file, const std::filesystem::path& incomplete) {
  Download(http, settings, file, incomplete).run();
}

std::string status_advice(const HttpResponse& response, const HubSettings& settings) {
  const std::string* said = response.header("x-error-message");
  const std::string answer = str(response.url, " answered ", response.status, said ? str(" (", *said, ")") : std::string());
  switch (response.status) {
    case 401:
      if (settings.token.empty()) {
        return str(answer, ": the name is misspelt, or it is private; then set HF_TOKEN, or put a token into ",
                   settings.token_path.string());
      }
      return str(answer, ": the token (--token, HF_TOKEN or ", settings.token_path.string(),
                 ") is wrong or has expired, or the name is misspelt");
    case 403:
      return str(answer,
                 ": access must be granted to you: accept the conditions on its page there, and set HF_TOKEN to a token of "
                 "that account ",
                 "which may read it");
    case 404: return str(answer, ": it does not exist there; check the spelling, and HF_TOKEN if it is private");
    default: return answer;
  }
}

}  // namespace trireme::trainer
