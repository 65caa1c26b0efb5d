#include "trireme/trainer/tokenizer/graphemes.h"

#include <unicode/uchar.h>

#include <algorithm>
#include <iterator>

#include "trireme/trainer/tokenizer/utf8.h"

namespace trireme::trainer {
namespace {

struct Range {
  char32_t first, last;
};

// Indic_Conjunct_Break=Consonant and =Linker of Unicode 15.1, which ICU has from version 76 on.
constexpr Range kConsonants[] = {
    {0x915, 0x939}, {0x958, 0x95F}, {0x978, 0x97F}, {0x995, 0x9A8}, {0x9AA, 0x9B0}, {0x9B2, 0x9B2}, {0x9B6, 0x9B9},
    {0x9DC, 0x9DD}, {0x9DF, 0x9DF}, {0x9F0, 0x9F1}, {0xA95, 0xAA8}, {0xAAA, 0xAB0}, {0xAB2, 0xAB3}, {0xAB5, 0xAB9},
    {0xAF9, 0xAF9}, {0xB15, 0xB28}, {0xB2A, 0xB30}, {0xB32, 0xB33}, {0xB35, 0xB39}, {0xB5C, 0xB5D}, {0xB5F, 0xB5F},
    {0xB71, 0xB71}, {0xC15, 0xC28}, {0xC2A, 0xC39}, {0xC58, 0xC5A}, {0xD15, 0xD3A},
};
constexpr char32_t kLinkers[] = {0x94D, 0x9CD, 0xACD, 0xB4D, 0xC4D, 0xD4D};

bool is_consonant(char32_t character) {
  return std::any_of(std::begin(kConsonants), std::end(kConsonants),
                     [&](const Range& range) { return character >= range.first && character <= range.last; });
}

bool is_linker(char32_t character) {
  return std::find(std::begin(kLinkers), std::end(kLinkers), character) != std::end(kLinkers);
}

int break_class(char32_t character) {
  return u_getIntPropertyValue(static_cast<UChar32>(character), UCHAR_GRAPHEME_CLUSTER_BREAK);
}

bool is_pictograph(char32_t character) {
  return u_hasBinaryProperty(static_cast<UChar32>(character), UCHAR_EXTENDED_PICTOGRAPHIC) != 0;
}

// What the rules need to know of the cluster so far.
struct State {
  int last = 0;                    // class of its last character
  bool odd_indicators = false;     // it ends with an odd number of regional indicators
  bool pictograph = false;         // it ends with a pictograph and extending characters
  bool pictograph_joiner = false;  // and then a joiner
  bool consonant = false;          // it ends with a consonant, and linkers and extending characters
  bool linked = false;             // of which one is a linker

  void add(char32_t character, int its_class) {
    pictograph_joiner = pictograph && its_class == U_GCB_ZWJ;
    pictograph = is_pictograph(character) || (pictograph && its_class == U_GCB_EXTEND);
    odd_indicators = its_class == U_GCB_REGIONAL_INDICATOR && !odd_indicators;
    if (is_consonant(character)) {
      consonant = true;
      linked = false;
    } else if (consonant && is_linker(character)) {
      linked = true;
    } else if (its_class != U_GCB_EXTEND && its_class != U_GCB_ZWJ) {
      consonant = linked = false;
    }
    last = its_class;
  }

  // The rules GB3 to GB13.
  bool goes_on_with(char32_t character, int next) const {
    const auto breaks = [](int its_class) {
      return its_class == U_GCB_CONTROL || its_class == U_GCB_CR || its_class == U_GCB_LF;
    };
    if (last == U_GCB_CR && next == U_GCB_LF) return true;
    if (breaks(last) || breaks(next)) return false;
    if (last == U_GCB_L && (next == U_GCB_L || next == U_GCB_V || next == U_GCB_LV || next == U_GCB_LVT)) return true;
    if ((last == U_GCB_LV || last == U_GCB_V) && (next == U_GCB_V || next == U_GCB_T)) return true;
    if ((last == U_GCB_LVT || last == U_GCB_T) && next == U_GCB_T) return true;
    if (next == U_GCB_EXTEND || next == U_GCB_ZWJ || next == U_GCB_SPACING_MARK || last == U_GCB_PREPEND) return true;
    if (linked && is_consonant(character)) return true;
    if (pictograph_joiner && is_pictograph(character)) return true;
    return odd_indicators && next == U_GCB_REGIONAL_INDICATOR;
  }
};

}  // namespace

size_t grapheme_end(std::string_view text, size_t begin) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  size_t at = begin + character_bytes(text[begin]);
  // Two characters of ASCII never share a cluster, but for CR LF.
  if (at == text.size() || (byte(begin) < 0x80 && byte(at) < 0x80 && text[begin] != '\r')) return at;
  State state;
  char32_t character = character_at(text, begin);
  state.add(character, break_class(character));
  while (at < text.size()) {
    character = character_at(text, at);
    const int next = break_class(character);
    if (!state.goes_on_with(character, next)) break;
    state.add(character, next);
    at += character_bytes(text[at]);
  }
  return at;
}

}  // namespace trireme::trainer
