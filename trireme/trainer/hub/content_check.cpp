#include "trireme/trainer/hub/content_check.h"

#include <algorithm>

#include "trireme/base/error.h"

namespace trireme::trainer {

std::string hexadecimal(const uint8_t* digest, size_t bytes) {
  std::string text;
  for (size_t i = 0; i < bytes; ++i) {
    text += "0123456789abcdef"[digest[i] >> 4];
    text += "0123456789abcdef"[digest[i] & 15];
  }
  return text;
}

ContentCheck::ContentCheck(std::string etag, uint64_t bytes) : etag_(std::move(etag)) {
  if (!std::all_of(etag_.begin(), etag_.end(), [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); }))
    return;
  if (etag_.size() == 64) {
    hash_.emplace<ccl::Sha256>();
  } else if (etag_.size() == 40) {
    const std::string prefix = str("blob ", bytes, '\0');  // as git names a file
    hash_.emplace<Sha1>().update(prefix.data(), prefix.size());
  }
}

void ContentCheck::update(const void* data, size_t bytes) {
  if (auto* sha256 = std::get_if<ccl::Sha256>(&hash_)) sha256->update(data, bytes);
  if (auto* sha1 = std::get_if<Sha1>(&hash_)) sha1->update(data, bytes);
}

std::string ContentCheck::difference() {
  std::string got, kind;
  if (auto* sha256 = std::get_if<ccl::Sha256>(&hash_)) {
    const auto digest = sha256->finish();
    got = hexadecimal(digest.data(), digest.size()), kind = "SHA-256";
  } else if (auto* sha1 = std::get_if<Sha1>(&hash_)) {
    const auto digest = sha1->finish();
    got = hexadecimal(digest.data(), digest.size()), kind = "git's SHA-1";
  }
  return got.empty() || got == etag_ ? "" : str(kind, " is ", got, ", not ", etag_);
}

}  // namespace trireme::trainer
