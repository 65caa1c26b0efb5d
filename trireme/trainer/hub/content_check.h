// Whether content is what its etag says. The hub's etags are hashes: SHA-256 of large files (LFS), git's SHA-1 of small
// ones.
#pragma once

#include <cstdint>
#include <string>
#include <variant>

#include "trireme/ccl/bootstrap/sha256.h"
#include "trireme/trainer/hub/sha1.h"

namespace trireme::trainer {

class ContentCheck {
 public:
  // `etag` without quotes; one that is no hash leaves nothing to check.
  ContentCheck(std::string etag, uint64_t bytes);

  bool is_possible() const { return !std::holds_alternative<std::monostate>(hash_); }
  void update(const void* data, size_t bytes);
  // After all of the content, once. Empty: it is right, or nothing can be checked. Else both hashes, for the message.
  std::string difference();

 private:
  std::string etag_;
  std::variant<std::monostate, ccl::Sha256, Sha1> hash_;
};

std::string hexadecimal(const uint8_t* digest, size_t bytes);

}  // namespace trireme::trainer
