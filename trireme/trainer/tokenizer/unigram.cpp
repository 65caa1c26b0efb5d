#include "trireme/trainer/tokenizer/unigram.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <limits>

#include "trireme/base/error.h"
#include "trireme/trainer/tokenizer/utf8.h"

namespace trireme::trainer {
namespace {

// What an unknown character costs more than the worst token.
constexpr double kUnknownPenalty = 10;

double power_of_ten(int exponent) {
  char text[8] = "1e";
  const char* const end = std::to_chars(text + 2, std::end(text), exponent).ptr;
  double value = 0;
  std::from_chars(text, end, value);
  return value;
}

// The number that Hugging Face reads where `written` is in the file. Its parser, serde_json without exact rounding, takes the
// digits for one integer, which it rounds, and divides that by a power of ten, which rounds again: in one number of five the
// last bit is another one. That bit decides between ways of the same tokens in another order. The digits are taken to be the
// fewest that tell the number from others, as tokenizers and Python write them.
double as_hugging_face_reads(double written) {
  char text[32];
  const char* const end = std::to_chars(text, std::end(text), std::abs(written), std::chars_format::scientific).ptr;
  const char* const mark = std::find(static_cast<const char*>(text), end, 'e');
  int exponent = 0;
  std::from_chars(mark + (mark[1] == '+' ? 2 : 1), end, exponent);
  uint64_t digits = static_cast<uint64_t>(text[0] - '0');
  for (const char* digit = text + 2; digit < mark; ++digit, --exponent) digits = 10 * digits + static_cast<uint64_t>(*digit - '0');
  auto value = static_cast<double>(digits);
  constexpr int kLeastExponent = -308;
  if (exponent < kLeastExponent) {
    value /= power_of_ten(-kLeastExponent);
    exponent -= kLeastExponent;
  }
  value = exponent < 0 ? value / power_of_ten(-exponent) : value * power_of_ten(exponent);
  return std::copysign(value, written);
}

}  // namespace

struct Unigram::Best {
  double score = 0;
  int32_t begin = -1;  // of its last token; -1, no way ends here
  int32_t id = 0;      // of its last token
};

Unigram::Unigram(const JsonPlace& place) : where_(place.where()), byte_fallback_(place.boolean_or("byte_fallback", false)) {
  read_vocabulary(place["vocab"]);
  if (place.has("unk_id")) {
    const int64_t id = place["unk_id"].integer();
    if (id < 0 || id >= static_cast<int64_t>(tokens_.size())) place["unk_id"].refuse(str(id, " is not in the vocabulary"));
    unknown_id_ = static_cast<int32_t>(id);
  }
}

// [["<unk>", 0.0], ["▁the", -3.5], ...]; the place in the list is the id.
void Unigram::read_vocabulary(const JsonPlace& place) {
  if (place.size() >= std::numeric_limits<int32_t>::max()) place.refuse("too many tokens");
  double lowest = std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < place.size(); ++i) {
    const JsonPlace entry = place.at(i);
    if (entry.size() != 2) entry.refuse("a token and its score are wanted");
    tokens_.push_back(entry.at(0).string());
    scores_.push_back(as_hugging_face_reads(entry.at(1).number()));
    ids_[tokens_.back()] = static_cast<int32_t>(i);
    lowest = std::min(lowest, scores_.back());
  }
  unknown_score_ = lowest - kUnknownPenalty;
  trie_ = ByteTrie({ids_.begin(), ids_.end()});
}

std::optional<int32_t> Unigram::find(std::string_view token) const {
  const auto found = ids_.find(token);
  return found == ids_.end() ? std::nullopt : std::optional(found->second);
}

// From left to right, each way extended by every token that begins where it ends. The first of equally good ones stays.
void Unigram::search(std::string_view word, std::vector<Best>& best) const {
  best.assign(word.size() + 1, {});
  for (size_t begin = 0, bytes; begin < word.size(); begin += bytes) {
    bytes = character_bytes(word[begin]);
    const double so_far = best[begin].score;
    const auto extend = [&](size_t length, double score, int32_t id) {
      Best& end = best[begin + length];
      if (end.begin < 0 || so_far + score > end.score) end = {so_far + score, static_cast<int32_t>(begin), id};
    };
    bool is_known = false;
    trie_.each_prefix(word.substr(begin), [&](size_t length, int32_t id) {
      extend(length, scores_[static_cast<size_t>(id)], id);
      is_known = is_known || length == bytes;
    });
    if (!is_known) extend(bytes, unknown_score_, unknown_id_);
  }
}

void Unigram::tokenize(std::string_view word, std::vector<Token>& tokens) const {
  thread_local std::vector<Best> best;
  search(word, best);
  // Back along the best way; neighbours that are unknown become one.
  thread_local std::vector<std::pair<uint32_t, uint32_t>> parts;
  parts.clear();
  bool unknown = false;
  for (auto end = static_cast<uint32_t>(word.size()); end > 0;) {
    const auto [score, begin, id] = best[end];
    if (id < 0) unknown_id();  // throws
    const auto first = static_cast<uint32_t>(begin);
    if (unknown && id == unknown_id_)
      parts.back().first = first;
    else
      parts.emplace_back(first, end);
    unknown = id == unknown_id_;
    end = first;
  }
  for (auto part = parts.rbegin(); part != parts.rend(); ++part) push(word, part->first, part->second, tokens);
}

void Unigram::push(std::string_view word, uint32_t begin, uint32_t end, std::vector<Token>& tokens) const {
  const std::string_view part = word.substr(begin, end - begin);
  std::optional<int32_t> id = find(part);
  if (!id && byte_fallback_) {
    const size_t before = tokens.size();
    for (const char byte : part) {
      char name[8];
      std::snprintf(name, sizeof name, "<0x%02X>", static_cast<unsigned>(static_cast<uint8_t>(byte)));
      const std::optional<int32_t> byte_id = find(name);
      if (!byte_id) {
        tokens.resize(before);
        break;
      }
      tokens.push_back({*byte_id, begin, end});
    }
    if (tokens.size() > before) return;
  }
  tokens.push_back({id ? *id : unknown_id(), begin, end});
}

int32_t Unigram::unknown_id() const {
  if (unknown_id_ < 0) throw InvalidArgument(str(where_, ": a character is unknown, and there is no unk_id"));
  return unknown_id_;
}

std::string_view Unigram::written(const Token& found, std::string_view word) const {
  const std::string_view part = word.substr(found.begin, found.end - found.begin);
  return found.id == unknown_id_ || find(part) == found.id ? part : token(found.id);
}

}  // namespace trireme::trainer
