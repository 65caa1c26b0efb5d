// The one table of environment variables: name, type, default, sentence. It makes docs/environment.md.
// A wrong value is an InvalidArgument that says what is allowed; an unknown TRIREME_ or CCL_ variable is a warning.
#pragma once

#include <chrono>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace trireme::env {

enum class Type { flag, integer, milliseconds, seconds, bytes, choice, text };

struct Variable {
  std::string_view name;
  Type type;
  std::string_view default_value;
  std::string_view allowed;  // "0..64" for integers, "a|b|c" for choices, "" for anything
  std::string_view sentence;
};

std::span<const Variable> table();

// The value of a variable of the table: the environment's, or the default. Asking for a name or a type that is not in the
// table is a bug. Values are read anew at each call: they are read when a communicator is made, never per operation.
bool flag(std::string_view name);
long long integer(std::string_view name);
std::chrono::milliseconds duration(std::string_view name);  // for milliseconds and seconds
size_t bytes(std::string_view name);                        // accepts 4096, 64k, 1m, 2g
std::string text(std::string_view name);                    // for choice and text
bool is_set(std::string_view name);

// Warns once per process about TRIREME_ and CCL_ variables in the environment that are not in the table.
void warn_about_unknown();

// docs/environment.md, as Markdown.
std::string documentation();

}  // namespace trireme::env
