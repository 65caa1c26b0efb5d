#include "trireme/trainer/tokenizer/pre_tokenizer.h"

#include "trireme/base/error.h"
#include "trireme/trainer/tokenizer/byte_level.h"
#include "trireme/trainer/tokenizer/characters.h"
#include "trireme/trainer/tokenizer/metaspace.h"
#include "trireme/trainer/tokenizer/nesting.h"

namespace trireme::trainer {
namespace {

// Walks `text` and calls emit for each run of characters of the same kind; kind(character) is 0 for what goes, and negative
// for what stands alone.
template <class Kind, class Emit>
void cut_by_kind(std::string_view text, const Kind& kind, const Emit& emit) {
  size_t begin = 0;
  int last = 0;
  for (size_t i = 0; i < text.size(); i += character_bytes(text[i])) {
    const int next = kind(character_at(text, i));
    if (next == last && next >= 0) continue;  // a run goes on
    if (last != 0) emit(begin, i);
    begin = i;
    last = next;
  }
  if (last != 0) emit(begin, text.size());
}

// At white space, which goes, and around each punctuation character.
class BertPreTokenizer final : public PreTokenizer {
 public:
  void apply(Pieces& pieces) const override {
    const auto kind = [](char32_t c) { return is_white_space(c) ? 0 : is_bert_punctuation(c) ? -1 : 1; };
    cut_pieces(pieces, [&](std::string_view text, const auto& emit) { cut_by_kind(text, kind, emit); });
  }
};

// \w+|[^\w\s]+
class Whitespace final : public PreTokenizer {
 public:
  void apply(Pieces& pieces) const override {
    const auto kind = [](char32_t c) { return is_word(c) ? 1 : is_white_space(c) ? 0 : 2; };
    cut_pieces(pieces, [&](std::string_view text, const auto& emit) { cut_by_kind(text, kind, emit); });
  }
};

class WhitespaceSplit final : public PreTokenizer {
 public:
  void apply(Pieces& pieces) const override {
    const auto kind = [](char32_t c) { return is_white_space(c) ? 0 : 1; };
    cut_pieces(pieces, [&](std::string_view text, const auto& emit) { cut_by_kind(text, kind, emit); });
  }
};

// One after the other.
class Sequence final : public PreTokenizer {
 public:
  explicit Sequence(std::vector<std::unique_ptr<PreTokenizer>> parts) : parts_(std::move(parts)) {}
  void apply(Pieces& pieces) const override {
    for (const auto& part : parts_) part->apply(pieces);
  }

 private:
  std::vector<std::unique_ptr<PreTokenizer>> parts_;
};

std::unique_ptr<PreTokenizer> make(const JsonPlace& place, const Nesting& nesting) {
  const std::string& type = place["type"].string();
  if (type == "Sequence") {
    const JsonPlace list = place["pretokenizers"];
    std::vector<std::unique_ptr<PreTokenizer>> parts;
    for (size_t i = 0; i < list.size(); ++i) parts.push_back(make(list.at(i), nesting.inside(list)));
    return std::make_unique<Sequence>(std::move(parts));
  }
  if (type == "BertPreTokenizer") return std::make_unique<BertPreTokenizer>();
  if (type == "Whitespace") return std::make_unique<Whitespace>();
  if (type == "WhitespaceSplit") return std::make_unique<WhitespaceSplit>();
  if (type == "ByteLevel") return std::make_unique<ByteLevel>(place);
  if (type == "Metaspace") return std::make_unique<Metaspace>(place);
  place.refuse(str("the pre-tokenizer \"", type,
                   "\" is not supported: Sequence, BertPreTokenizer, Whitespace, WhitespaceSplit, ",
                   "ByteLevel and Metaspace are"));
}

}  // namespace

std::unique_ptr<PreTokenizer> make_pre_tokenizer(const JsonPlace& place) { return make(place, Nesting()); }

}  // namespace trireme::trainer
