// One file from a URL to the disk: streamed, continued after a cut, checked.
#pragma once

#include <filesystem>
#include <string>

#include "trireme/trainer/hub/http.h"

namespace trireme::trainer {

// What a HEAD request tells of a file.
struct RemoteFile {
  std::string url;
  std::string name;      // for messages and progress
  std::string etag;      // without quotes
  std::string if_range;  // the etag as the server that has the content wrote it; empty: not known, or weak
  uint64_t bytes = 0;
};

// The etag of a file as a name: W/"x" and "x" are x. Empty if it cannot be one.
std::string plain_etag(const std::string& etag);

// Leaves the content in `incomplete`, all of it, checked and on the disk; continues what is in there already if what comes
// out can be checked. The caller holds a lock on it. HubUnreachable and write errors leave it, to be continued; content that
// is wrong is removed (IoError).
void download(Http& http, const HubSettings& settings, const RemoteFile& file, const std::filesystem::path& incomplete);

// What an answer that is no success means, for a message: "401 ...: what to do".
std::string status_advice(const HttpResponse& response, const HubSettings& settings);

}  // namespace trireme::trainer
