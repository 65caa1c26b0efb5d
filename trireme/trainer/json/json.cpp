#include "trireme/trainer/json/json.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <fstream>
#include <sstream>

#include "trireme/base/error.h"

namespace trireme::trainer {
namespace {

std::string line_and_column(std::string_view text, size_t byte, size_t first_line) {
  text = text.substr(0, std::min(byte, text.size()));
  const auto line = first_line + static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
  const size_t start = text.rfind('\n') + 1;  // npos + 1 is 0
  return str("line ", line, ", column ", text.size() - start);
}

// Python writes what is no number as a bare word. Outside of strings, such a word can be nothing else.
void replace_bare_words(std::string& text) {
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && in_string)
      ++i;
    else if (text[i] == '"')
      in_string = !in_string;
    else if (!in_string)
      for (const std::string_view word : {"NaN", "-Infinity", "Infinity"})
        if (text.compare(i, word.size(), word) == 0) text.replace(i, word.size(), "null");
  }
}

}  // namespace

std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw IoError(errno_message(str("cannot open ", path.string()), errno));
  std::ostringstream content;
  // An empty one is no error, which << would make it. A pipe has no size to ask for.
  if (file.peek() != std::ifstream::traits_type::eof()) content << file.rdbuf();
  if (!file || !content) throw IoError(errno_message(str("cannot read ", path.string()), errno));
  return std::move(content).str();
}

Json parse_json(std::string_view text, const std::string& source, const Json::parser_callback_t& keep, size_t first_line) {
  try {
    return Json::parse(text, keep);
  } catch (const Json::parse_error& error) {
    // "[json.exception.parse_error.101] parse error at line 1, column 5: syntax error while ...": what follows the place.
    std::string why = error.what();
    if (const size_t colon = why.find(": "); colon != std::string::npos) why = why.substr(colon + 2);
    throw InvalidArgument(str(source, ": ", line_and_column(text, error.byte, first_line), ": ", why));
  } catch (const Json::out_of_range& error) {
    // "[json.exception.out_of_range.406] number overflow parsing '1e999'": it does not say where.
    const std::string_view what = error.what();
    throw InvalidArgument(str(source, ": ", what.substr(what.find(']') + 2)));
  }
}

Json read_json(const std::filesystem::path& path) {
  if (std::filesystem::is_directory(path)) throw IoError(str(path.string(), " is a directory, not a JSON file"));
  return parse_json(read_file(path), path.string());
}

Json parse_python_json(std::string text, const std::string& source) {
  replace_bare_words(text);
  return parse_json(text, source);
}

Json read_python_json(const std::filesystem::path& path) { return parse_python_json(read_file(path), path.string()); }

// The shortest digits that read back as the same number, as to_chars finds them too; with an exponent below 1e-4 and from
// 1e16 on.
std::string python_repr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  const double size = std::abs(value);
  const bool plain = value == 0 || (size >= 1e-4 && size < 1e16);
  char buffer[32];
  const auto [end, error] =
      std::to_chars(buffer, std::end(buffer), value, plain ? std::chars_format::fixed : std::chars_format::scientific);
  std::string text(buffer, end);
  return plain && text.find('.') == std::string::npos ? text + ".0" : text;
}

bool JsonPlace::has(std::string_view key) const {
  if (!value_->is_object()) return false;
  const auto found = value_->find(key);
  return found != value_->end() && !found->is_null();
}

JsonPlace JsonPlace::operator[](std::string_view key) const {
  object();
  const auto found = value_->find(key);
  if (found == value_->end()) refuse(str("\"", key, "\" is missing"));
  return {*found, std::string(where_).append(".").append(key)};
}

JsonPlace JsonPlace::at(size_t index) const {
  if (index >= size()) refuse(str("has no element ", index));
  return {(*value_)[index], where_ + "[" + std::to_string(index) + "]"};
}

size_t JsonPlace::size() const { return array().size(); }

const std::string& JsonPlace::string() const {
  if (!value_->is_string()) refuse(str("a string is wanted, not ", value_->type_name()));
  return value_->get_ref<const std::string&>();
}

int64_t JsonPlace::integer() const {
  if (!value_->is_number_integer()) refuse(str("a whole number is wanted, not ", value_->type_name()));
  return value_->get<int64_t>();
}

double JsonPlace::number() const {
  if (!value_->is_number()) refuse(str("a number is wanted, not ", value_->type_name()));
  return value_->get<double>();
}

bool JsonPlace::boolean() const {
  if (!value_->is_boolean()) refuse(str("true or false is wanted, not ", value_->type_name()));
  return value_->get<bool>();
}

const Json& JsonPlace::array() const {
  if (!value_->is_array()) refuse(str("an array is wanted, not ", value_->type_name()));
  return *value_;
}

const Json& JsonPlace::object() const {
  if (!value_->is_object()) refuse(str("an object is wanted, not ", value_->type_name()));
  return *value_;
}

int64_t JsonPlace::integer_or(std::string_view key, int64_t otherwise) const {
  return has(key) ? (*this)[key].integer() : otherwise;
}

double JsonPlace::number_or(std::string_view key, double otherwise) const {
  return has(key) ? (*this)[key].number() : otherwise;
}

bool JsonPlace::boolean_or(std::string_view key, bool otherwise) const {
  return has(key) ? (*this)[key].boolean() : otherwise;
}

std::string JsonPlace::string_or(std::string_view key, std::string_view otherwise) const {
  return has(key) ? (*this)[key].string() : std::string(otherwise);
}

void JsonPlace::refuse(const std::string& what) const { throw InvalidArgument(str(where_, ": ", what)); }

}  // namespace trireme::trainer
