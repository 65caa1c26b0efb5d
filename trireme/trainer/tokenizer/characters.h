// What kind of character it is, in the eyes of Hugging Face's tokenizers library (0.22). It asks four Rust crates, each with
// the Unicode version it was made for; we ask ICU and correct its answer. tests/trainer/test_tokenizers.py compares every
// code point.
#pragma once

#include <array>
#include <cstdint>

namespace trireme::trainer {

// Rust's char::is_whitespace, and \s in its regular expressions.
bool is_white_space(char32_t character);

// What BERT's normalizer removes as a control character (crate unicode_categories: Cc, Cf and Co of Unicode 8, not Cn).
bool is_bert_control(char32_t character);

// What BERT splits at: ASCII's punctuation and symbols, and P* of Unicode 8 (crate unicode_categories).
bool is_bert_punctuation(char32_t character);

// What BERT's normalizer puts spaces around.
bool is_chinese(char32_t character);

// Mn of Unicode 8 (crate unicode_categories): what BERT's normalizer takes for an accent.
bool is_nonspacing_mark(char32_t character);

// M* of Unicode 9 (crate unicode-normalization-alignments): what the normalizer StripAccents takes for one.
bool is_combining_mark(char32_t character);

// \p{L}, \p{N} and \w of Unicode 16 (Oniguruma; crate regex).
bool is_letter(char32_t character);
bool is_number(char32_t character);
bool is_word(char32_t character);

// Rust's char::to_lowercase (Unicode 17): one character, or two, then the second is not 0.
std::array<char32_t, 2> to_lower(char32_t character);

}  // namespace trireme::trainer
