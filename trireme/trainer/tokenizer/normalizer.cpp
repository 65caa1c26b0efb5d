#include "trireme/trainer/tokenizer/normalizer.h"

#include <functional>

#include "trireme/base/error.h"
#include "trireme/trainer/tokenizer/bert_normalizer.h"
#include "trireme/trainer/tokenizer/characters.h"
#include "trireme/trainer/tokenizer/nesting.h"
#include "trireme/trainer/tokenizer/normal_forms.h"
#include "trireme/trainer/tokenizer/precompiled.h"
#include "trireme/trainer/tokenizer/replace.h"

namespace trireme::trainer {
namespace {

// One after the other.
class Sequence final : public Normalizer {
 public:
  explicit Sequence(std::vector<std::unique_ptr<Normalizer>> parts) : parts_(std::move(parts)) {}
  void apply(AlignedText& text) const override {
    for (const auto& part : parts_) part->apply(text);
  }

 private:
  std::vector<std::unique_ptr<Normalizer>> parts_;
};

// What needs no fields of its own.
class Simple final : public Normalizer {
 public:
  explicit Simple(std::function<void(AlignedText&)> apply) : apply_(std::move(apply)) {}
  void apply(AlignedText& text) const override { apply_(text); }

 private:
  std::function<void(AlignedText&)> apply_;
};

std::unique_ptr<Normalizer> simple(std::function<void(AlignedText&)> apply) {
  return std::make_unique<Simple>(std::move(apply));
}

std::unique_ptr<Normalizer> to_form(NormalForm form) {
  return simple([form](AlignedText& text) { to_normal_form(text, form); });
}

// White space at the ends.
void strip(AlignedText& text, bool left, bool right) {
  size_t begin = 0, end = text.text.size();
  while (left && begin < end && is_white_space(character_at(text.text, begin))) begin += character_bytes(text.text[begin]);
  while (right && end > begin) {
    const size_t before = character_before(text.text, end);
    if (!is_white_space(character_at(text.text, before))) break;
    end = before;
  }
  AlignedText stripped;
  append_range(stripped, text, begin, end);
  text = std::move(stripped);
}

std::unique_ptr<Normalizer> make(const JsonPlace& place, const Nesting& nesting) {
  const std::string& type = place["type"].string();
  if (type == "Sequence") {
    const JsonPlace list = place["normalizers"];
    std::vector<std::unique_ptr<Normalizer>> parts;
    for (size_t i = 0; i < list.size(); ++i) parts.push_back(make(list.at(i), nesting.inside(list)));
    return std::make_unique<Sequence>(std::move(parts));
  }
  if (type == "BertNormalizer") return std::make_unique<BertNormalizer>(place);
  if (type == "NFD") return to_form(NormalForm::nfd);
  if (type == "NFC") return to_form(NormalForm::nfc);
  if (type == "NFKD") return to_form(NormalForm::nfkd);
  if (type == "NFKC") return to_form(NormalForm::nfkc);
  if (type == "Lowercase") return simple(to_lower_case);
  if (type == "StripAccents") {
    return simple([](AlignedText& text) { filter(text, [](char32_t character) { return !is_combining_mark(character); }); });
  }
  if (type == "Strip") {
    const bool left = place["strip_left"].boolean(), right = place["strip_right"].boolean();
    return simple([left, right](AlignedText& text) { strip(text, left, right); });
  }
  if (type == "Prepend") {
    return simple([prefix = place["prepend"].string()](AlignedText& text) { prepend(text, prefix); });
  }
  if (type == "Replace") return std::make_unique<Replace>(place);
  if (type == "Precompiled") return std::make_unique<Precompiled>(place);
  place.refuse(str("the normalizer \"", type,
                   "\" is not supported: Sequence, BertNormalizer, NFD, NFC, NFKD, NFKC, Lowercase, ",
                   "StripAccents, Strip, Prepend, Replace and Precompiled are"));
}

}  // namespace

std::unique_ptr<Normalizer> make_normalizer(const JsonPlace& place) { return make(place, Nesting()); }

}  // namespace trireme::trainer
