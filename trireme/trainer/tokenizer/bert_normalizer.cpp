#include "trireme/trainer/tokenizer/bert_normalizer.h"

#include "trireme/trainer/tokenizer/characters.h"
#include "trireme/trainer/tokenizer/normal_forms.h"

namespace trireme::trainer {
namespace {

bool is_removed(char32_t character) { return character == 0xFFFD || is_bert_control(character); }

void clean(AlignedText& text) {
  filter(text, [](char32_t character) { return !is_removed(character); });
  map(text, [](char32_t character) { return is_white_space(character) ? U' ' : character; });
}

void put_spaces_around_chinese(AlignedText& text) {
  std::vector<Change> changes;
  changes.reserve(text.text.size());
  for (size_t i = 0; i < text.text.size(); i += character_bytes(text.text[i])) {
    const char32_t character = character_at(text.text, i);
    if (is_chinese(character)) {
      // All three stand for the character.
      changes.insert(changes.end(), {{U' ', 0}, {character, 1}, {U' ', 1}});
    } else {
      changes.push_back({character, 0});
    }
  }
  rewrite(text, changes);
}

void strip_accents(AlignedText& text) {
  to_normal_form(text, NormalForm::nfd);
  filter(text, [](char32_t character) { return !is_nonspacing_mark(character); });
}

}  // namespace

BertNormalizer::BertNormalizer(const JsonPlace& place)
    : clean_text_(place["clean_text"].boolean()),
      handle_chinese_chars_(place["handle_chinese_chars"].boolean()),
      strip_accents_(false),
      lowercase_(place["lowercase"].boolean()) {
  strip_accents_ = place.boolean_or("strip_accents", lowercase_);
}

void BertNormalizer::apply(AlignedText& text) const {
  if (is_ascii(text.text)) return apply_to_ascii(text);
  if (clean_text_) clean(text);
  if (handle_chinese_chars_) put_spaces_around_chinese(text);
  if (strip_accents_) strip_accents(text);
  if (lowercase_) to_lower_case(text);
}

// The same, where neither Chinese characters nor accents can be: most texts, in one pass.
void BertNormalizer::apply_to_ascii(AlignedText& text) const {
  size_t kept = 0;
  for (size_t i = 0; i < text.text.size(); ++i) {
    char character = text.text[i];
    if (clean_text_) {
      if (is_white_space(static_cast<uint8_t>(character)) && character != '\v' && character != '\f') {
        character = ' ';
      } else if (character < ' ' || character == 0x7F) {
        continue;
      }
    }
    if (lowercase_ && character >= 'A' && character <= 'Z') character = static_cast<char>(character + 0x20);
    text.text[kept] = character;
    text.spans[kept] = text.spans[i];
    ++kept;
  }
  text.text.resize(kept);
  text.spans.resize(kept);
}

void to_lower_case(AlignedText& text) {
  std::vector<Change> changes;
  changes.reserve(text.text.size());
  for (size_t i = 0; i < text.text.size(); i += character_bytes(text.text[i])) {
    const auto [first, second] = to_lower(character_at(text.text, i));
    changes.push_back({first, 0});
    if (second != 0) changes.push_back({second, 1});
  }
  rewrite(text, changes);
}

}  // namespace trireme::trainer
