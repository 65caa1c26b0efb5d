#include "trireme/trainer/tokenizer/precompiled.h"

#include <algorithm>
#include <cstring>

#include "trireme/base/error.h"
#include "trireme/trainer/tokenizer/base64.h"
#include "trireme/trainer/tokenizer/graphemes.h"
#include "trireme/trainer/tokenizer/utf8.h"

namespace trireme::trainer {
namespace {

// Clusters of this many bytes and more are looked up character by character.
constexpr size_t kClusterBytes = 6;

uint32_t read_u32(std::string_view bytes) {
  uint32_t value = 0;
  for (size_t i = 0; i < 4; ++i) value |= static_cast<uint32_t>(static_cast<uint8_t>(bytes[i])) << (8 * i);
  return value;
}

// One unit of the double array.
bool has_leaf(uint32_t unit) { return (unit >> 8 & 1) == 1; }
uint32_t value_of(uint32_t unit) { return unit & 0x7FFFFFFF; }
uint32_t label_of(uint32_t unit) { return unit & 0x800000FF; }
uint32_t offset_of(uint32_t unit) { return (unit >> 10) << ((unit & 0x200) >> 6); }

// Characters that come, and those that go, counted as Hugging Face's library does: what goes with nothing before it is lost
// count of, and the alignments after it are late by as much.
void replace(std::vector<Change>& changes, std::string_view old, std::string_view with) {
  const auto before = static_cast<int32_t>(count_characters(old));
  int32_t count = 0;
  for (size_t i = 0; i < with.size(); i += character_bytes(with[i])) {
    changes.push_back({character_at(with, i), ++count > before ? 1 : 0});
  }
  if (count < before && !changes.empty()) changes.back().change += count - before;
}

}  // namespace

Precompiled::Precompiled(const JsonPlace& place) : where_(place.where()) {
  const JsonPlace charsmap = place["precompiled_charsmap"];
  const std::optional<std::string> bytes = decode_base64(charsmap.string());
  if (!bytes) charsmap.refuse("is not base64");
  const size_t trie_bytes = bytes->size() < 4 ? 0 : read_u32(*bytes) / 4 * 4;
  if (trie_bytes == 0 || trie_bytes > bytes->size() - 4) charsmap.refuse("has no trie, or is shorter than its trie");
  for (size_t i = 4; i < 4 + trie_bytes; i += 4) trie_.push_back(read_u32(std::string_view(*bytes).substr(i)));
  replacements_ = bytes->substr(4 + trie_bytes);
  check_utf8(replacements_, charsmap.where() + ": what follows the trie");
  ascii_.resize(0x80);
  for (char character = 0x7F; character > 0; --character) ascii_[static_cast<size_t>(character)] = find({&character, 1});
}

std::string_view Precompiled::find(std::string_view part) const {
  const auto unit_at = [&](uint32_t node) {
    if (node >= trie_.size()) throw InvalidArgument(str(where_, ": the trie of precompiled_charsmap leads out of itself"));
    return trie_[node];
  };
  uint32_t node = offset_of(trie_[0]);
  for (const char byte : part) {
    const auto label = static_cast<uint8_t>(byte);
    if (label == 0) return {};
    node ^= label;
    const uint32_t unit = unit_at(node);
    if (label_of(unit) != label) return {};
    node ^= offset_of(unit);
    if (!has_leaf(unit)) continue;
    const uint32_t begin = value_of(unit_at(node));
    if (begin > replacements_.size() || (begin < replacements_.size() && !starts_character(replacements_[begin]))) {
      throw InvalidArgument(str(where_, ": precompiled_charsmap has a replacement at byte ", begin, ", where none begins"));
    }
    return std::string_view(replacements_).substr(begin, std::strlen(replacements_.c_str() + begin));
  }
  return {};
}

std::string_view Precompiled::find_character(std::string_view character) const {
  return character.size() == 1 ? ascii_[static_cast<size_t>(character[0])] : find(character);
}

void Precompiled::apply(AlignedText& text) const {
  std::vector<Change> changes;
  changes.reserve(text.text.size());
  const std::string_view old = text.text;
  bool modified = false;
  for (size_t begin = 0, end; begin < old.size(); begin = end) {
    end = grapheme_end(old, begin);
    const std::string_view cluster = old.substr(begin, end - begin);
    if (cluster.size() < kClusterBytes) {
      const std::string_view with = find_character(cluster);
      if (with.data() != nullptr) {
        modified = true;
        replace(changes, cluster, with);
        continue;
      }
      if (cluster.size() == character_bytes(cluster[0])) {
        changes.push_back({character_at(cluster, 0), 0});
        continue;
      }
    }
    for (size_t i = 0, bytes; i < cluster.size(); i += bytes) {
      bytes = character_bytes(cluster[i]);
      const std::string_view with = find_character(cluster.substr(i, bytes));
      if (with.data() == nullptr) {
        changes.push_back({character_at(cluster, i), 0});
      } else {
        modified = true;
        replace(changes, cluster.substr(i, bytes), with);
      }
    }
  }
  if (modified) rewrite(text, changes);
}

}  // namespace trireme::trainer
