#include "trireme/trainer/tokenizer/normal_forms.h"

#include <unicode/uchar.h>
#include <unicode/unorm2.h>
#include <unicode/utf16.h>

#include <algorithm>

#include "trireme/base/error.h"

namespace trireme::trainer {
namespace {

// The longest decomposition is that of U+FDFA: 18 UTF-16 units.
constexpr int kMaxUnits = 32;

struct Decomposed {
  char32_t character;
  int32_t change;
  uint8_t combining_class;
};

bool is_in_unicode_9(char32_t character) {
  UVersionInfo age;
  u_charAge(static_cast<UChar32>(character), age);
  return age[0] <= 9;
}

uint8_t combining_class(char32_t character) {
  if (character < 0x300 || !is_in_unicode_9(character)) return 0;
  return u_getCombiningClass(static_cast<UChar32>(character));
}

const UNormalizer2* tables(bool compatible) {
  UErrorCode error = U_ZERO_ERROR;
  const UNormalizer2* found = compatible ? unorm2_getNFKCInstance(&error) : unorm2_getNFCInstance(&error);
  TRIREME_ENFORCE(U_SUCCESS(error), "ICU has no normalization data: ", u_errorName(error));
  return found;
}

// The text in canonical order.
std::vector<Decomposed> decompose(std::string_view text, bool compatible) {
  const UNormalizer2* normalizer = tables(compatible);
  std::vector<Decomposed> out;
  out.reserve(text.size());
  size_t unordered = 0;  // where the last starter stands: what follows it still needs its order
  const auto order = [&] {
    std::stable_sort(out.begin() + static_cast<ptrdiff_t>(unordered), out.end(),
                     [](const Decomposed& a, const Decomposed& b) { return a.combining_class < b.combining_class; });
  };
  const auto push = [&](char32_t character, int32_t change) {
    const uint8_t its_class = combining_class(character);
    if (its_class == 0) {
      if (out.size() > unordered + 1) order();
      unordered = out.size();
    }
    out.push_back({character, change, its_class});
  };
  for (size_t i = 0; i < text.size(); i += character_bytes(text[i])) {
    const char32_t character = character_at(text, i);
    UChar units[kMaxUnits];
    UErrorCode error = U_ZERO_ERROR;
    const int32_t count =
        character < 0xA0 || !is_in_unicode_9(character)
            ? -1
            : unorm2_getDecomposition(normalizer, static_cast<UChar32>(character), units, kMaxUnits, &error);
    TRIREME_ENFORCE(U_SUCCESS(error), "decomposition of U+", std::hex, static_cast<uint32_t>(character));
    if (count < 0) {
      push(character, 0);
      continue;
    }
    for (int32_t at = 0, change = 0; at < count; change = 1) {
      UChar32 part = 0;
      U16_NEXT(units, at, count, part);
      push(static_cast<char32_t>(part), change);
    }
  }
  order();
  return out;
}

// U+0 if the two make none.
char32_t compose(char32_t first, char32_t second) {
  const UChar32 both = unorm2_composePair(tables(false), static_cast<UChar32>(first), static_cast<UChar32>(second));
  return both > 0 && is_in_unicode_9(static_cast<char32_t>(both)) ? static_cast<char32_t>(both) : 0;
}

// Joins what decompose() made: a mark goes into the last starter unless a mark between them has its class or a higher one.
std::vector<Change> recompose(const std::vector<Decomposed>& text) {
  std::vector<Change> out;
  out.reserve(text.size());
  std::vector<Change> marks;  // those that stay between `starter` and the next one
  Change starter{0, 0};
  bool have_starter = false;
  int last_class = -1;  // of `marks`; -1, there are none
  const auto flush = [&] {
    if (have_starter) out.push_back(starter);
    out.insert(out.end(), marks.begin(), marks.end());
    marks.clear();
    last_class = -1;
  };
  for (const auto& [character, change, its_class] : text) {
    if (!have_starter) {
      if (its_class != 0) {
        out.push_back({character, change});
      } else {
        starter = {character, change};
        have_starter = true;
      }
      continue;
    }
    if (last_class < its_class) {
      if (const char32_t both = compose(starter.character, character); both != 0) {
        starter = {both, starter.change + change - 1};
        continue;
      }
    }
    if (its_class == 0) {
      flush();
      starter = {character, change};
    } else {
      marks.push_back({character, change});
      last_class = its_class;
    }
  }
  flush();
  return out;
}

}  // namespace

void to_normal_form(AlignedText& text, NormalForm form) {
  if (is_ascii(text.text)) return;
  const std::vector<Decomposed> decomposed = decompose(text.text, form == NormalForm::nfkd || form == NormalForm::nfkc);
  if (form == NormalForm::nfc || form == NormalForm::nfkc) {
    rewrite(text, recompose(decomposed));
    return;
  }
  std::vector<Change> changes;
  changes.reserve(decomposed.size());
  for (const Decomposed& part : decomposed) changes.push_back({part.character, part.change});
  rewrite(text, changes);
}

}  // namespace trireme::trainer
