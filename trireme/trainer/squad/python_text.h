// Text as Python sees and writes it; json.h has its numbers. Scores and files are to equal those of run_qa.py and of SQuAD's
// official scripts, which are Python. All text is UTF-8; where it is not, bytes count as U+FFFD.
#pragma once

#include <string>
#include <string_view>

namespace trireme::trainer {

bool is_python_space(char32_t c);  // str.isspace
bool is_python_word(char32_t c);   // \w of re

std::string_view python_lstrip(std::string_view text);
std::string python_lower(std::string_view text);  // str.lower: full mappings, and a sigma that ends a word

std::string python_json_string(std::string_view text);  // json.dumps: in quotes, ASCII only

// The code point that starts at byte `at`, which moves behind it.
char32_t next_code_point(std::string_view text, size_t& at);

// The byte at which code point number `index` starts; the number of code points gives the end, npos if it is more.
size_t byte_of_code_point(std::string_view text, size_t index);

}  // namespace trireme::trainer
