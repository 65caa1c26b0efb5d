// A string whose layout does not depend on libstdc++'s two std::string ABIs: the library and a program built with
// _GLIBCXX_USE_CXX11_ABI=0 can pass it to each other.
#pragma once

#include <cstring>
#include <iostream>
#include <string>
#include <vector>

namespace ccl {
inline namespace v1 {

class string {
 public:
  string() = default;
  string(const char* text) : string(text, std::strlen(text)) {}
  string(const std::string& text) : string(text.data(), text.size()) {}

  size_t length() const { return chars_.empty() ? 0 : chars_.size() - 1; }
  const char* c_str() const { return chars_.empty() ? "" : chars_.data(); }
  operator std::string() const { return std::string(c_str(), length()); }

  string operator+(const char* right) const { return plus(right, std::strlen(right)); }
  string operator+(const string& right) const { return plus(right.c_str(), right.length()); }
  string operator+(const std::string& right) const { return plus(right.data(), right.size()); }
  friend std::string operator+(const std::string& left, const string& right) { return left + std::string(right); }

  friend bool operator==(const string& a, const string& b) { return a.compare(b) == 0; }
  friend bool operator!=(const string& a, const string& b) { return a.compare(b) != 0; }
  friend bool operator<(const string& a, const string& b) { return a.compare(b) < 0; }
  friend bool operator<=(const string& a, const string& b) { return a.compare(b) <= 0; }
  friend bool operator>(const string& a, const string& b) { return a.compare(b) > 0; }
  friend bool operator>=(const string& a, const string& b) { return a.compare(b) >= 0; }

  friend std::ostream& operator<<(std::ostream& out, const string& text) { return out.write(text.c_str(), text.length()); }

 private:
  string(const char* text, size_t length) : chars_(text, text + length) { chars_.push_back('\0'); }

  string plus(const char* right, size_t length) const {
    string sum(c_str(), this->length());
    sum.chars_.insert(sum.chars_.end() - 1, right, right + length);
    return sum;
  }

  int compare(const string& other) const { return std::strcmp(c_str(), other.c_str()); }

  // With its terminating zero, or empty.
  std::vector<char> chars_;
};

}  // namespace v1
}  // namespace ccl
