// A table of command-line flags in the style of Hugging Face's scripts, and the parser that fills the members of an options
// struct from it. The table is bound to one struct: the defaults are the struct's own, and help, documentation and JSON are
// printed from the table.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "trireme/trainer/json/json.h"

namespace trireme::trainer {

enum class Kind { boolean, integer, number, text, list };

// Where a value goes. An optional one has no default; JSON's null empties it.
using Target = std::variant<std::monostate, bool*, std::optional<bool>*, int64_t*, std::optional<int64_t>*, double*,
                            std::optional<double>*, std::string*, std::optional<std::string>*, std::vector<std::string>*>;

// What a value may be. A number's range includes its ends, unless it is said otherwise.
struct Allowed {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool above_low = false;                 // low itself is not allowed
  bool below_high = false;                // high itself is not allowed
  bool whole_or_ratio = false;            // a whole number, or one between 0 and 1: a share of all steps
  std::vector<std::string_view> choices;  // of a text
  std::string_view remedy;                // said to who gives another
};

Allowed at_least(double low);
Allowed above(double low);
Allowed above_up_to(double low, double high);
Allowed between(double low, double high);
Allowed from_up_to_below(double low, double high);
Allowed steps_or_ratio();
Allowed one_of(std::initializer_list<std::string_view> choices, std::string_view remedy = "");

// Does a flag do something, is it accepted for the sake of command lines written for run_qa.py, or is it an error to ask for
// it?
enum class Effect { acts, moot, refused };

struct Flag {
  std::string_view name;  // max_steps: given as --max_steps or --max-steps
  Kind kind;
  Target target;
  std::string_view help;  // acts: what it does. moot: why it does nothing here. refused: why not, and what to do instead
  Allowed allowed;
  Effect effect = Effect::acts;
  std::vector<std::string_view> harmless;  // refused: values that are no error, beside False and the empty text
  std::vector<std::string_view> aliases;
  std::string_view group;
  bool negatable = false;        // a boolean that is True by default: --no_flag, as Hugging Face's parser has it
  bool may_stand_alone = false;  // a text that may also be a boolean: without a value it is True
};

// The rows in order. It points into the options struct that it was made from.
class FlagTable {
 public:
  explicit FlagTable(std::string_view command) : command_(command) {}

  void group(std::string_view title) { group_ = title; }
  Flag& flag(std::string_view name, Target target, std::string_view help, Allowed allowed = {});
  Flag& moot(std::string_view name, Kind kind, std::string_view why, Allowed allowed = {});
  Flag& refused(std::string_view name, Kind kind, std::string_view why, std::vector<std::string_view> harmless = {});

  std::span<const Flag> flags() const& { return flags_; }
  std::span<const Flag> flags() const&& = delete;  // the rows are gone with a temporary table
  std::string_view command() const { return command_; }  // "trireme qa"
  const Flag* find(std::string_view name) const;         // by name or alias, with '-' for '_' as well

  // What a flag has now, as in help: "5e-05", "False", "" for nothing.
  static std::string value_text(const Flag& flag);
  // All flags that act, with what they have now.
  Json to_json() const;

 private:
  std::string_view command_;
  std::string_view group_;
  std::vector<Flag> flags_;
};

struct Given {
  bool help = false;               // --help or -h was there: nothing else was looked at
  std::set<std::string> flags;     // names of the flags that were given
  std::vector<std::string> notes;  // one sentence for each moot flag that was given
};

// Fills the table's members. Accepts --flag value, --flag=value, --flag for a boolean and what may be one, --no_flag for a
// boolean that is True by default, '-' for '_' in names; the last of repeated flags counts. A single argument that ends in
// .json is a file with the arguments. InvalidArgument names the flag, what was given and what is allowed; an unknown flag's
// nearest neighbour is named. Members that came before are then filled.
Given parse_flags(const FlagTable& table, const std::vector<std::string>& arguments);

// The text of --help: groups, names, defaults, at most `width` columns.
std::string help_text(const FlagTable& table, std::string_view introduction, size_t width = 100);

// The same as a Markdown table per group.
std::string markdown(const FlagTable& table);

// "the nearest of these words, or nothing where none is near": for "did you mean".
std::optional<std::string> nearest(std::string_view word, const std::vector<std::string>& words);

// Breaks a text between words into lines of at most `width` columns, each after the first behind `indent` spaces.
std::string wrapped(std::string_view text, size_t width, size_t indent);

}  // namespace trireme::trainer
