// Reads and checks the variables of the table in env_table.cpp.
#include "trireme/base/env.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <limits>
#include <mutex>
#include <optional>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/log.h"

extern char** environ;

namespace trireme::env {

namespace {

constexpr std::string_view kTrue[] = {"1", "on", "true", "yes"};
constexpr std::string_view kFalse[] = {"0", "off", "false", "no"};

struct Range {
  long long low = 0;
  long long high = std::numeric_limits<long long>::max();
};

const Variable& find(std::string_view name) {
  auto rows = table();
  auto row = std::ranges::find(rows, name, &Variable::name);
  TRIREME_ENFORCE(row != rows.end(), name, " is not in the table of environment variables");
  return *row;
}

const Variable& find(std::string_view name, std::initializer_list<Type> types) {
  const Variable& variable = find(name);
  TRIREME_ENFORCE(std::ranges::find(types, variable.type) != types.end(), name, " is of another type");
  return variable;
}

// An empty variable counts as unset: a shell or a manifest cannot always unset one.
std::optional<std::string> from_environment(std::string_view name) {
  const char* value = std::getenv(std::string(name).c_str());
  if (value == nullptr || *value == '\0') return std::nullopt;
  return value;
}

std::string value_of(const Variable& variable) {
  return from_environment(variable.name).value_or(std::string(variable.default_value));
}

[[noreturn]] void reject(const Variable& variable, std::string_view value, std::string_view expected) {
  throw InvalidArgument(str(variable.name, "=", value, ": expected ", expected));
}

std::optional<long long> parse_integer(std::string_view text) {
  long long value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// "1..64", "0.." (no upper end), or "" (any that is not negative).
Range parse_range(std::string_view allowed) {
  Range range;
  if (allowed.empty()) return range;
  size_t dots = allowed.find("..");
  range.low = parse_integer(allowed.substr(0, dots)).value();
  if (dots + 2 < allowed.size()) range.high = parse_integer(allowed.substr(dots + 2)).value();
  return range;
}

std::string describe_range(std::string_view allowed) {
  if (allowed.empty()) return " of at least 0";
  if (allowed.ends_with("..")) return str(" of at least ", allowed.substr(0, allowed.size() - 2));
  return str(" in ", allowed);
}

long long checked(const Variable& variable, const std::string& text, std::optional<long long> value, std::string_view what) {
  Range range = parse_range(variable.allowed);
  if (!value || *value < range.low || *value > range.high)
    reject(variable, text, str(what, describe_range(variable.allowed)));
  return *value;
}

long long suffix_factor(char suffix) {
  switch (suffix) {
    case 'k':
    case 'K': return 1LL << 10;
    case 'm':
    case 'M': return 1LL << 20;
    case 'g':
    case 'G': return 1LL << 30;
    default: return 1;
  }
}

std::optional<long long> parse_bytes(std::string_view text) {
  long long factor = text.empty() ? 1 : suffix_factor(text.back());
  if (factor > 1) text.remove_suffix(1);
  auto value = parse_integer(text);
  if (!value || *value > std::numeric_limits<long long>::max() / factor) return std::nullopt;
  return *value * factor;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (size_t begin = 0; begin <= text.size();) {
    size_t end = std::min(text.find(separator, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

// In words: what a variable may be, for the documentation.
std::string describe_type(const Variable& variable) {
  switch (variable.type) {
    case Type::flag: return "0 or 1";
    case Type::integer: return str("integer", describe_range(variable.allowed));
    case Type::milliseconds: return str("milliseconds, an integer", describe_range(variable.allowed));
    case Type::seconds: return str("seconds, an integer", describe_range(variable.allowed));
    case Type::bytes: return str("bytes (`4096`, `64k`, `1m`, `2g`)", describe_range(variable.allowed));
    case Type::text: return "text";
    case Type::choice: break;
  }
  std::string choices;
  for (std::string_view choice : split(variable.allowed, '|')) choices += str(choices.empty() ? "`" : ", `", choice, "`");
  return choices;
}

}  // namespace

bool flag(std::string_view name) {
  const Variable& variable = find(name, {Type::flag});
  std::string value = value_of(variable);
  if (std::ranges::find(kTrue, value) != std::end(kTrue)) return true;
  if (std::ranges::find(kFalse, value) != std::end(kFalse)) return false;
  reject(variable, value, "0 or 1 (or off|on, false|true, no|yes)");
}

long long integer(std::string_view name) {
  const Variable& variable = find(name, {Type::integer});
  std::string value = value_of(variable);
  return checked(variable, value, parse_integer(value), "an integer");
}

std::chrono::milliseconds duration(std::string_view name) {
  const Variable& variable = find(name, {Type::milliseconds, Type::seconds});
  std::string value = value_of(variable);
  if (variable.type == Type::milliseconds)
    return std::chrono::milliseconds(checked(variable, value, parse_integer(value), "milliseconds, an integer"));
  return std::chrono::seconds(checked(variable, value, parse_integer(value), "seconds, an integer"));
}

size_t bytes(std::string_view name) {
  const Variable& variable = find(name, {Type::bytes});
  std::string value = value_of(variable);
  return static_cast<size_t>(checked(variable, value, parse_bytes(value), "bytes such as 4096, 64k, 1m or 2g,"));
}

std::string text(std::string_view name) {
  const Variable& variable = find(name, {Type::choice, Type::text});
  std::string value = value_of(variable);
  if (variable.type == Type::text) return value;
  auto choices = split(variable.allowed, '|');
  if (value != variable.default_value && std::ranges::find(choices, value) == choices.end()) reject(variable, value, variable.allowed);
  return value;
}

bool is_set(std::string_view name) { return from_environment(find(name).name).has_value(); }

void warn_about_unknown() {
  static std::once_flag once;
  std::call_once(once, [] {
    std::string unknown;
    for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
      std::string_view name = std::string_view(*entry).substr(0, std::string_view(*entry).find('='));
      if (!name.starts_with("TRIREME_") && !name.starts_with("CCL_")) continue;
      if (std::ranges::find(table(), name, &Variable::name) != table().end()) continue;
      unknown += str(unknown.empty() ? "" : ", ", name);
    }
    if (!unknown.empty()) log(LogLevel::warn, str("without effect, for no such variable is known: ", unknown));
  });
}

std::string documentation() {
  std::string page =
      "# Environment variables\n\n"
      "Read when a communicator is made. An empty variable counts as unset. A wrong value is an error that says what is\n"
      "allowed; a `TRIREME_` or `CCL_` variable that is not in this table has no effect, and a warning says so.\n\n"
      "| variable | value | default | meaning |\n"
      "|---|---|---|---|\n";
  for (const Variable& variable : table()) {
    std::string standard = variable.default_value.empty() ? "" : str("`", variable.default_value, "`");
    page += str("| `", variable.name, "` | ", describe_type(variable), " | ", standard, " | ", variable.sentence, " |\n");
  }
  return page;
}

}  // namespace trireme::env
