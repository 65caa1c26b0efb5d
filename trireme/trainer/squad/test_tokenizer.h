// A tokenizer for tests: words between spaces, numbered from 3 as they come. 0 is the CLS token, 1 the separator.
#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <string>

#include "trireme/base/error.h"
#include "trireme/trainer/tokenizer/tokenizer.h"

namespace trireme::trainer {

class WordTokenizer final : public Tokenizer {
 public:
  WordTokenizer() { pair_ = {{0}, {1}, {1}, 0, 0, 0, 1, 1}; }

  // Called before a text is tokenised, outside of the lock.
  std::function<void(std::string_view)> before_encoding = [](std::string_view) {};

  Encoding encode(std::string_view text) const override {
    before_encoding(text);
    std::lock_guard lock(mutex_);
    ++encoded_[std::string(text)];
    if (text.find("BAD") != std::string_view::npos) throw InvalidArgument("tokenizer: " + std::string(text));
    Encoding encoding;
    for (size_t at = 0; (at = text.find_first_not_of(' ', at)) != std::string_view::npos;) {
      const size_t end = std::min(text.find(' ', at), text.size());
      const auto id =
          ids_.try_emplace(std::string(text.substr(at, end - at)), static_cast<int32_t>(3 + ids_.size())).first->second;
      encoding.ids.push_back(id);
      encoding.spans.push_back({static_cast<uint32_t>(at), static_cast<uint32_t>(end)});
      at = end;
    }
    return encoding;
  }
  const PairTemplate& pair_template() const override { return pair_; }
  int32_t cls_id() const override { return 0; }
  int32_t vocabulary_size() const override { return 1 << 20; }
  const std::vector<std::filesystem::path>& files() const override { return files_; }

  // How often each text was tokenised.
  const std::map<std::string, int>& encoded() const { return encoded_; }

 private:
  PairTemplate pair_;
  std::vector<std::filesystem::path> files_;
  mutable std::mutex mutex_;
  mutable std::map<std::string, int32_t> ids_;
  mutable std::map<std::string, int> encoded_;
};

}  // namespace trireme::trainer
