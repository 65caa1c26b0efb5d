// The tokens of a model and their ids.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace trireme::trainer {

struct StringHash {
  using is_transparent = void;
  size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
};

template <class Value>
using StringMap = std::unordered_map<std::string, Value, StringHash, std::equal_to<>>;

// As it stands in a file: tokens in the order of the file, ids not checked.
using TokenList = std::vector<std::pair<std::string, int64_t>>;

class Vocabulary {
 public:
  Vocabulary() = default;
  // InvalidArgument begins with `where`. Gaps between ids are allowed, as in Hugging Face's library.
  Vocabulary(const TokenList& tokens, const std::string& where);
  Vocabulary(Vocabulary&&) = default;
  Vocabulary& operator=(Vocabulary&&) = default;

  std::optional<int32_t> find(std::string_view token) const {
    const auto found = ids_.find(token);
    return found == ids_.end() ? std::nullopt : std::optional(found->second);
  }
  // The token of an id that find() gave.
  std::string_view token(int32_t id) const { return tokens_.at(id); }

  const StringMap<int32_t>& ids() const { return ids_; }
  size_t size() const { return ids_.size(); }
  int32_t highest_id() const { return highest_id_; }  // -1 if it is empty

 private:
  StringMap<int32_t> ids_;
  std::unordered_map<int32_t, std::string_view> tokens_;  // into ids_, whose nodes do not move
  int32_t highest_id_ = -1;
};

}  // namespace trireme::trainer
