#include "trireme/trainer/tokenizer/characters.h"

#include <unicode/uchar.h>

#include <algorithm>
#include <span>

namespace trireme::trainer {
namespace {

struct Range {
  char32_t first, last;
};

// `ranges` in ascending order.
bool is_in(std::span<const Range> ranges, char32_t character) {
  const auto after = std::upper_bound(ranges.begin(), ranges.end(), character,
                                      [](char32_t c, const Range& range) { return c < range.first; });
  return after != ranges.begin() && character <= std::prev(after)->last;
}

// Cc, Cf and Co of Unicode 8, without tab, line feed and carriage return, which BERT takes for white space.
constexpr Range kBertControl[] = {
    {0x0, 0x8},         {0xB, 0xC},         {0xE, 0x1F},        {0x7F, 0x9F},       {0xAD, 0xAD},       {0x600, 0x605},
    {0x61C, 0x61C},     {0x6DD, 0x6DD},     {0x70F, 0x70F},     {0x180E, 0x180E},   {0x200B, 0x200F},   {0x202A, 0x202E},
    {0x2060, 0x2064},   {0x2066, 0x206F},   {0xE000, 0xF8FF},   {0xFEFF, 0xFEFF},   {0xFFF9, 0xFFFB},   {0x110BD, 0x110BD},
    {0x1BCA0, 0x1BCA3}, {0x1D173, 0x1D17A}, {0xE0001, 0xE0001}, {0xE0020, 0xE007F}, {0xF0000, 0xFFFFD}, {0x100000, 0x10FFFD},
};

// The blocks that BERT counts as Chinese. U+2B820..2B91F is missing from the original too.
constexpr Range kChinese[] = {{0x3400, 0x4DBF},   {0x4E00, 0x9FFF},   {0xF900, 0xFAFF},   {0x20000, 0x2A6DF},
                              {0x2A700, 0x2B73F}, {0x2B740, 0x2B81F}, {0x2B920, 0x2CEAF}, {0x2F800, 0x2FA1F}};

// Characters of Unicode 8 that changed their category since.
constexpr Range kNotYetNonspacing[] = {{0x1885, 0x1886}, {0xA9BD, 0xA9BD}, {0x111C9, 0x111C9}};
constexpr Range kOnceNonspacing[] = {{0x1734, 0x1734}};
constexpr Range kOncePunctuation[] = {{0x166D, 0x166D}, {0x111C9, 0x111C9}};
// The same of Unicode 9.
constexpr Range kNotYetCombining[] = {{0x111C9, 0x111C9}};
constexpr Range kOnceCombining[] = {{0x1CF2, 0x1CF3}};

// New in Unicode 15.1 and 16, which ICU 72 does not know.
constexpr Range kNewLetters[] = {
    {0x1C89, 0x1C8A},   {0xA7CB, 0xA7CD},   {0xA7DA, 0xA7DC},   {0x105C0, 0x105F3}, {0x10D4A, 0x10D65}, {0x10D6F, 0x10D85},
    {0x10EC2, 0x10EC4}, {0x11380, 0x11389}, {0x1138B, 0x1138B}, {0x1138E, 0x1138E}, {0x11390, 0x113B5}, {0x113B7, 0x113B7},
    {0x113D1, 0x113D1}, {0x113D3, 0x113D3}, {0x11BC0, 0x11BE0}, {0x13460, 0x143FA}, {0x16100, 0x1611D}, {0x16D40, 0x16D6C},
    {0x18CFF, 0x18CFF}, {0x1E5D0, 0x1E5ED}, {0x1E5F0, 0x1E5F0}, {0x2EBF0, 0x2EE5D},
};
constexpr Range kNewNumbers[] = {{0x10D40, 0x10D49}, {0x116D0, 0x116E3}, {0x11BF0, 0x11BF9}, {0x16130, 0x16139},
                                 {0x16D70, 0x16D79}, {0x1CCF0, 0x1CCF9}, {0x1E5F1, 0x1E5FA}};
constexpr Range kNewMarks[] = {{0x897, 0x897},     {0x10D69, 0x10D6D}, {0x10EFC, 0x10EFC}, {0x113B8, 0x113C0},
                               {0x113C2, 0x113C2}, {0x113C5, 0x113C5}, {0x113C7, 0x113CA}, {0x113CC, 0x113D0},
                               {0x113D2, 0x113D2}, {0x113E1, 0x113E2}, {0x11F5A, 0x11F5A}, {0x1611E, 0x1612F},
                               {0x1E5EE, 0x1E5EF}};

// New in Unicode 16 and 17: `lower` belongs to `upper.first`, the others follow.
struct NewLower {
  Range upper;
  char32_t lower;
};
constexpr NewLower kNewLower[] = {
    {{0x1C89, 0x1C89}, 0x1C8A},    {{0xA7CB, 0xA7CB}, 0x264},     {{0xA7CC, 0xA7CC}, 0xA7CD}, {{0xA7CE, 0xA7CE}, 0xA7CF},
    {{0xA7D2, 0xA7D2}, 0xA7D3},    {{0xA7D4, 0xA7D4}, 0xA7D5},    {{0xA7DA, 0xA7DA}, 0xA7DB}, {{0xA7DC, 0xA7DC}, 0x19B},
    {{0x10D50, 0x10D65}, 0x10D70}, {{0x16EA0, 0x16EB8}, 0x16EBB},
};

bool is_in_version(char32_t character, uint8_t major) {
  UVersionInfo age;
  u_charAge(static_cast<UChar32>(character), age);
  return age[0] < major || (age[0] == major && age[1] == 0);
}

bool has_category(char32_t character, uint32_t mask) { return (U_GET_GC_MASK(static_cast<UChar32>(character)) & mask) != 0; }

}  // namespace

bool is_white_space(char32_t character) {
  if (character < 0x80) return character == ' ' || (character >= 9 && character <= 13);
  return u_hasBinaryProperty(static_cast<UChar32>(character), UCHAR_WHITE_SPACE) != 0;
}

bool is_bert_control(char32_t character) { return is_in(kBertControl, character); }

bool is_bert_punctuation(char32_t character) {
  if (character < 0x80) {
    return (character > ' ' && character < '0') || (character > '9' && character < 'A') ||
           (character > 'Z' && character < 'a') || (character > 'z' && character < 0x7F);
  }
  return is_in(kOncePunctuation, character) || (has_category(character, U_GC_P_MASK) && is_in_version(character, 8));
}

bool is_chinese(char32_t character) { return character >= 0x3400 && is_in(kChinese, character); }

bool is_nonspacing_mark(char32_t character) {
  if (character < 0x300) return false;
  if (has_category(character, U_GC_MN_MASK)) return is_in_version(character, 8) && !is_in(kNotYetNonspacing, character);
  return is_in(kOnceNonspacing, character);
}

bool is_combining_mark(char32_t character) {
  if (character < 0x300) return false;
  if (has_category(character, U_GC_M_MASK)) return is_in_version(character, 9) && !is_in(kNotYetCombining, character);
  return is_in(kOnceCombining, character);
}

bool is_letter(char32_t character) {
  if (character < 0x80) return (character | 0x20) >= 'a' && (character | 0x20) <= 'z';
  return (has_category(character, U_GC_L_MASK) && is_in_version(character, 16)) || is_in(kNewLetters, character);
}

bool is_number(char32_t character) {
  if (character < 0x80) return character >= '0' && character <= '9';
  return (has_category(character, U_GC_N_MASK) && is_in_version(character, 16)) || is_in(kNewNumbers, character);
}

bool is_word(char32_t character) {
  if (character < 0x80) return is_letter(character) || is_number(character) || character == '_';
  const auto c = static_cast<UChar32>(character);
  const bool known = u_hasBinaryProperty(c, UCHAR_ALPHABETIC) || u_hasBinaryProperty(c, UCHAR_JOIN_CONTROL) ||
                     has_category(character, U_GC_M_MASK | U_GC_ND_MASK | U_GC_PC_MASK);
  return (known && is_in_version(character, 16)) || is_in(kNewLetters, character) || is_in(kNewNumbers, character) ||
         is_in(kNewMarks, character);
}

std::array<char32_t, 2> to_lower(char32_t character) {
  if (character < 0x80) return {character >= 'A' && character <= 'Z' ? character + 0x20 : character, 0};
  if (character == 0x130) return {'i', 0x307};  // the only one with two
  for (const NewLower& added : kNewLower) {
    if (character >= added.upper.first && character <= added.upper.last) {
      return {character - added.upper.first + added.lower, 0};
    }
  }
  return {static_cast<char32_t>(u_tolower(static_cast<UChar32>(character))), 0};
}

}  // namespace trireme::trainer
