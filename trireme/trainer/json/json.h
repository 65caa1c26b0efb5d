// JSON files that people hand us: every complaint names the file and the place in it.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace trireme::trainer {

using Json = nlohmann::ordered_json;

// The whole of a file. IoError names it if it cannot be read.
std::string read_file(const std::filesystem::path& path);

// Parses `text`, which came from `source` (a file's name) and starts at its line `first_line`. InvalidArgument says line and
// column. `keep` may take values out on the way (see nlohmann's parser_callback_t): an object of Json takes time in the
// square of its keys.
Json parse_json(std::string_view text, const std::string& source, const Json::parser_callback_t& keep = nullptr,
                size_t first_line = 1);

Json read_json(const std::filesystem::path& path);

// The same for what Python's json has written: its NaN and Infinity, which are no JSON, are read as null.
Json parse_python_json(std::string text, const std::string& source);
Json read_python_json(const std::filesystem::path& path);

// A float as Python's repr and json write it, but for json's capitals: 0.1, 1.0, 1e-05, nan.
std::string python_repr(double value);

// A value and where it stands ("train.json: data[3].context"), to read it with complaints that say so. It refers to the
// document: that must outlive it.
class JsonPlace {
 public:
  JsonPlace(const Json& value, std::string where) : value_(&value), where_(std::move(where)) {}

  const Json& value() const { return *value_; }
  const std::string& where() const { return where_; }

  bool has(std::string_view key) const;              // an object, and the key is there and not null
  JsonPlace operator[](std::string_view key) const;  // InvalidArgument if it is not there
  JsonPlace at(size_t index) const;
  size_t size() const;  // of an array; InvalidArgument if it is none

  const std::string& string() const;
  int64_t integer() const;
  double number() const;
  bool boolean() const;
  const Json& array() const;
  const Json& object() const;

  int64_t integer_or(std::string_view key, int64_t otherwise) const;
  double number_or(std::string_view key, double otherwise) const;
  bool boolean_or(std::string_view key, bool otherwise) const;
  std::string string_or(std::string_view key, std::string_view otherwise) const;

  // Throws InvalidArgument: "<where>: <what>".
  [[noreturn]] void refuse(const std::string& what) const;

 private:
  const Json* value_;
  std::string where_;
};

}  // namespace trireme::trainer
