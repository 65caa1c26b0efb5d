#include "trireme/trainer/options/flags.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>

#include "trireme/base/error.h"

namespace trireme::trainer {
namespace {

constexpr std::string_view kTrue[] = {"true", "yes", "1", "t", "y"};
constexpr std::string_view kFalse[] = {"false", "no", "0", "f", "n"};

template <class... Functions>
struct Overloaded : Functions... {
  using Functions::operator()...;
};
template <class... Functions>
Overloaded(Functions...) -> Overloaded<Functions...>;  // clang 14 does not find it by itself

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return result;
}

std::string underscored(std::string_view name) {
  std::string result(name);
  std::ranges::replace(result, '-', '_');
  return result;
}

std::string number_text(double value) {
  char buffer[64];
  const auto [end, error] = std::to_chars(buffer, buffer + sizeof buffer, value);
  return {buffer, end};
}

Kind kind_of(const Target& target) {
  return std::visit(Overloaded{[](std::monostate) { return Kind::text; }, [](bool*) { return Kind::boolean; },
                               [](std::optional<bool>*) { return Kind::boolean; }, [](int64_t*) { return Kind::integer; },
                               [](std::optional<int64_t>*) { return Kind::integer; }, [](double*) { return Kind::number; },
                               [](std::optional<double>*) { return Kind::number; }, [](std::string*) { return Kind::text; },
                               [](std::optional<std::string>*) { return Kind::text; },
                               [](std::vector<std::string>*) { return Kind::list; }},
                    target);
}

// "at least 1", "above 0", "0 to 1", "0 or more, below 1"; empty where everything is allowed.
std::string range_text(const Allowed& allowed) {
  const bool has_low = std::isfinite(allowed.low), has_high = std::isfinite(allowed.high);
  if (has_low && has_high && !allowed.above_low && !allowed.below_high)
    return str("from ", number_text(allowed.low), " to ", number_text(allowed.high));
  std::string text;
  if (has_low) text = str(allowed.above_low ? "above " : "at least ", number_text(allowed.low));
  if (has_high)
    text += str(text.empty() ? "" : " and ", allowed.below_high ? "below " : "at most ", number_text(allowed.high));
  return text;
}

std::string choices_text(const Allowed& allowed) {
  std::string text;
  for (size_t i = 0; i < allowed.choices.size(); ++i) {
    if (i > 0) text += i + 1 == allowed.choices.size() ? " or " : ", ";
    text += allowed.choices[i];
  }
  return text;
}

// What is wanted, in words: "a whole number, at least 1".
std::string wanted(const Flag& flag) {
  const std::string range = range_text(flag.allowed);
  const std::string behind = range.empty() ? "" : str(", ", range);
  if (!flag.allowed.choices.empty()) return choices_text(flag.allowed);
  if (flag.allowed.whole_or_ratio) return "a whole number of steps, or a share of all steps between 0 and 1";
  switch (flag.kind) {
    case Kind::boolean: return "True or False";
    case Kind::integer: return str("a whole number", behind);
    case Kind::number: return str("a number", behind);
    case Kind::text: return "a text";
    case Kind::list: return "one or more words";
  }
  return "";
}

// One flag that was met: `where` is what the user wrote ("--max-steps", "args.json: max_steps").
struct Met {
  const Flag& flag;
  std::string where;

  [[noreturn]] void reject(std::string_view given) const {
    std::string message = str(where, given.empty() ? "" : " ", given, ": wanted is ", wanted(flag));
    if (!flag.allowed.remedy.empty()) message += str("; ", flag.allowed.remedy);
    throw InvalidArgument(message);
  }
  [[noreturn]] void missing() const {
    throw InvalidArgument(str(where, ": the value is missing; wanted is ", wanted(flag)));
  }
};

std::optional<bool> boolean_of(std::string_view text) {
  const std::string word = lower(text);
  if (std::ranges::find(kTrue, word) != std::end(kTrue)) return true;
  if (std::ranges::find(kFalse, word) != std::end(kFalse)) return false;
  return std::nullopt;
}

template <class T>
std::optional<T> number_of(std::string_view text) {
  if (text.starts_with('+')) text.remove_prefix(1);
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

bool within(const Allowed& allowed, double value) {
  if (!std::isfinite(value)) return false;
  if (allowed.whole_or_ratio && value > 1 && value != std::floor(value)) return false;
  if (allowed.above_low ? value <= allowed.low : value < allowed.low) return false;
  return allowed.below_high ? value < allowed.high : value <= allowed.high;
}

bool parse_boolean(const Met& met, std::string_view text) {
  const auto value = boolean_of(text);
  if (!value) met.reject(text);
  return *value;
}

template <class T>
T parse_number(const Met& met, std::string_view text) {
  const auto value = number_of<T>(text);
  if (!value || !within(met.flag.allowed, static_cast<double>(*value))) met.reject(text);
  return *value;
}

std::string parse_text(const Met& met, const std::string& text) {
  const auto& choices = met.flag.allowed.choices;
  if (!choices.empty() && std::ranges::find(choices, text) == choices.end()) met.reject(text);
  return text;
}

// Checks the words and puts them where they belong, if anywhere.
void assign(const Met& met, const std::vector<std::string>& words) {
  const std::string& word = words.front();
  switch (met.flag.kind) {
    case Kind::boolean: {
      const bool value = parse_boolean(met, word);
      std::visit(Overloaded{[&](bool* to) { *to = value; }, [&](std::optional<bool>* to) { *to = value; }, [](auto) {}},
                 met.flag.target);
      return;
    }
    case Kind::integer: {
      const auto value = parse_number<int64_t>(met, word);
      std::visit(
          Overloaded{[&](int64_t* to) { *to = value; }, [&](std::optional<int64_t>* to) { *to = value; }, [](auto) {}},
          met.flag.target);
      return;
    }
    case Kind::number: {
      const auto value = parse_number<double>(met, word);
      std::visit(Overloaded{[&](double* to) { *to = value; }, [&](std::optional<double>* to) { *to = value; }, [](auto) {}},
                 met.flag.target);
      return;
    }
    case Kind::text: {
      const std::string value = parse_text(met, word);
      std::visit(Overloaded{[&](std::string* to) { *to = value; }, [&](std::optional<std::string>* to) { *to = value; },
                            [](auto) {}},
                 met.flag.target);
      return;
    }
    case Kind::list: {
      std::vector<std::string> values;
      for (const std::string& each : words) values.push_back(parse_text(met, each));
      if (const auto* to = std::get_if<std::vector<std::string>*>(&met.flag.target)) **to = values;
      return;
    }
  }
}

bool is_harmless(const Flag& flag, const std::string& word) {
  if (word.empty() || std::ranges::find(flag.harmless, word) != flag.harmless.end()) return true;
  return flag.kind == Kind::boolean && boolean_of(word) == false;
}

void take(const Met& met, const std::vector<std::string>& words, Given& given) {
  const Flag& flag = met.flag;
  if (flag.effect == Effect::refused && !is_harmless(flag, words.front()))
    throw InvalidArgument(str(met.where, ": ", flag.help));
  assign(met, words);
  const bool first = given.flags.insert(std::string(flag.name)).second;
  if (flag.effect == Effect::moot && first) given.notes.push_back(str("--", flag.name, " has no effect: ", flag.help));
}

// "-1" and "-3e-5" are values, "-x" and "--flag" are not.
bool is_value(const std::string& argument) { return !argument.starts_with('-') || number_of<double>(argument).has_value(); }

// Every way to name a flag of the table.
std::vector<std::string> spellings(const FlagTable& table) {
  std::vector<std::string> names = {"--help"};
  for (const Flag& flag : table.flags()) {
    names.push_back(str("--", flag.name));
    for (std::string_view alias : flag.aliases) names.push_back(str("--", alias));
  }
  return names;
}

[[noreturn]] void unknown(const FlagTable& table, const std::string& where, const std::string& name) {
  const auto near = nearest("--" + underscored(name), spellings(table));
  throw InvalidArgument(str(where, ": there is no such flag; ",
                            near ? str("did you mean ", *near, "?") : str("`", table.command(), " --help` lists all")));
}

// The flag whose --no_ form this is.
const Flag* negated(const FlagTable& table, const std::string& name) {
  if (!name.starts_with("no_")) return nullptr;
  const Flag* flag = table.find(name.substr(3));
  return flag != nullptr && flag->negatable ? flag : nullptr;
}

// Walks over the command line.
class CommandLine {
 public:
  CommandLine(const FlagTable& table, const std::vector<std::string>& arguments) : table_(table), arguments_(arguments) {}

  Given parse() {
    while (next_ < arguments_.size()) parse_one(arguments_[next_++]);
    return std::move(given_);
  }

 private:
  void parse_one(const std::string& argument) {
    if (!argument.starts_with("--") || argument.size() == 2)
      throw InvalidArgument(str("\"", argument, "\": a flag is wanted here, such as --", table_.flags().front().name,
                                "; a .json file of arguments stands alone"));
    const size_t equals = argument.find('=');
    const std::string spelled = argument.substr(0, equals), name = underscored(spelled.substr(2));
    const Flag* flag = table_.find(name);
    if (flag == nullptr) return parse_negated(spelled, name, equals != std::string::npos);
    const Met met{*flag, spelled};
    take(met, equals == std::string::npos ? words_of(met) : std::vector{argument.substr(equals + 1)}, given_);
  }

  void parse_negated(const std::string& spelled, const std::string& name, bool has_value) {
    const Flag* flag = negated(table_, name);
    if (flag == nullptr) unknown(table_, spelled, name);
    if (has_value) throw InvalidArgument(str(spelled, " takes no value; --", flag->name, " False says the same"));
    take({*flag, spelled}, {"False"}, given_);
  }

  std::vector<std::string> words_of(const Met& met) {
    std::vector<std::string> words;
    const bool many = met.flag.kind == Kind::list;
    while (next_ < arguments_.size() && is_value(arguments_[next_]) && (many || words.empty()))
      words.push_back(arguments_[next_++]);
    if (words.empty() && (met.flag.kind == Kind::boolean || met.flag.may_stand_alone)) return {"True"};
    if (words.empty()) met.missing();
    return words;
  }

  const FlagTable& table_;
  const std::vector<std::string>& arguments_;
  size_t next_ = 0;
  Given given_;
};

// A JSON value as the words that a command line would have.
std::vector<std::string> words_of(const Met& met, const Json& value) {
  if (value.is_string()) return {value.get<std::string>()};
  if (value.is_boolean()) return {value.get<bool>() ? "True" : "False"};
  if (value.is_number_integer()) return {value.dump()};
  if (value.is_number()) return {number_text(value.get<double>())};
  if (value.is_object() && met.flag.kind == Kind::text) return {value.dump()};
  if (!value.is_array() || met.flag.kind != Kind::list || value.empty()) met.reject(value.dump());
  std::vector<std::string> words;
  for (const Json& each : value) words.push_back(each.is_string() ? each.get<std::string>() : each.dump());
  return words;
}

void empty_target(const Flag& flag) {
  std::visit(Overloaded{[](std::optional<bool>* to) { to->reset(); }, [](std::optional<int64_t>* to) { to->reset(); },
                        [](std::optional<double>* to) { to->reset(); }, [](std::optional<std::string>* to) { to->reset(); },
                        [](auto) {}},
             flag.target);
}

Given parse_file(const FlagTable& table, const std::string& file) {
  const Json document = read_json(file);
  Given given;
  for (const auto& [key, value] : JsonPlace(document, file).object().items()) {
    const std::string where = str(file, ": ", key);
    const Flag* flag = table.find(underscored(key));
    if (flag == nullptr) unknown(table, where, key);
    if (value.is_null())
      empty_target(*flag);
    else
      take({*flag, where}, words_of({*flag, where}, value), given);
  }
  return given;
}

// Levenshtein's distance, row by row.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, diagonal + 1});
    }
  }
  return row.back();
}

}  // namespace

Allowed at_least(double low) { return {.low = low, .choices = {}, .remedy = {}}; }
Allowed above(double low) { return {.low = low, .above_low = true, .choices = {}, .remedy = {}}; }
Allowed above_up_to(double low, double high) {
  return {.low = low, .high = high, .above_low = true, .choices = {}, .remedy = {}};
}
Allowed between(double low, double high) { return {.low = low, .high = high, .choices = {}, .remedy = {}}; }
Allowed from_up_to_below(double low, double high) {
  return {.low = low, .high = high, .below_high = true, .choices = {}, .remedy = {}};
}
Allowed steps_or_ratio() { return {.low = 0, .whole_or_ratio = true, .choices = {}, .remedy = {}}; }
Allowed one_of(std::initializer_list<std::string_view> choices, std::string_view remedy) {
  return {.choices = choices, .remedy = remedy};
}

Flag& FlagTable::flag(std::string_view name, Target target, std::string_view help, Allowed allowed) {
  const auto* boolean = std::get_if<bool*>(&target);
  const bool negatable = boolean != nullptr && **boolean;
  flags_.push_back(
      {name, kind_of(target), target, help, std::move(allowed), Effect::acts, {}, {}, group_, negatable, false});
  return flags_.back();
}

Flag& FlagTable::moot(std::string_view name, Kind kind, std::string_view why, Allowed allowed) {
  flags_.push_back({name, kind, {}, why, std::move(allowed), Effect::moot, {}, {}, group_, kind == Kind::boolean, false});
  return flags_.back();
}

Flag& FlagTable::refused(std::string_view name, Kind kind, std::string_view why, std::vector<std::string_view> harmless) {
  flags_.push_back({name, kind, {}, why, {}, Effect::refused, std::move(harmless), {}, group_, false, false});
  return flags_.back();
}

const Flag* FlagTable::find(std::string_view name) const {
  for (const Flag& flag : flags_)
    if (flag.name == name || std::ranges::find(flag.aliases, name) != flag.aliases.end()) return &flag;
  return nullptr;
}

std::string FlagTable::value_text(const Flag& flag) {
  return std::visit(
      Overloaded{[](std::monostate) { return std::string(); },
                 [](const bool* value) { return std::string(*value ? "True" : "False"); },
                 [](const double* value) { return number_text(*value); },
                 [](const int64_t* value) { return std::to_string(*value); },
                 [](const std::string* value) { return *value; },
                 [](const std::optional<bool>* value) { return std::string(*value ? (**value ? "True" : "False") : ""); },
                 [](const std::optional<int64_t>* value) { return *value ? std::to_string(**value) : ""; },
                 [](const std::optional<double>* value) { return *value ? number_text(**value) : ""; },
                 [](const std::optional<std::string>* value) { return value->value_or(""); },
                 [](const std::vector<std::string>* value) {
                   std::string text;
                   for (const std::string& word : *value) text += (text.empty() ? "" : " ") + word;
                   return text;
                 }},
      flag.target);
}

Json FlagTable::to_json() const {
  Json json = Json::object();
  for (const Flag& flag : flags_) {
    if (flag.effect != Effect::acts) continue;
    Json& value = json[std::string(flag.name)];
    std::visit(Overloaded{[](std::monostate) {}, [&](const std::vector<std::string>* words) { value = *words; },
                          [&]<class T>(const std::optional<T>* optional) {
                            if (*optional) value = **optional;
                          },
                          [&](const auto* plain) { value = *plain; }},
               flag.target);
  }
  return json;
}

Given parse_flags(const FlagTable& table, const std::vector<std::string>& arguments) {
  for (const std::string& argument : arguments)
    if (argument == "--help" || argument == "-h") return {.help = true, .flags = {}, .notes = {}};
  if (arguments.size() == 1 && !arguments[0].starts_with('-') && arguments[0].ends_with(".json"))
    return parse_file(table, arguments[0]);
  return CommandLine(table, arguments).parse();
}

std::optional<std::string> nearest(std::string_view word, const std::vector<std::string>& words) {
  const std::string* best = nullptr;
  size_t best_distance = std::max<size_t>(2, word.size() / 3) + 1;
  for (const std::string& candidate : words)
    if (const size_t distance = edit_distance(word, candidate); distance < best_distance)
      best = &candidate, best_distance = distance;
  return best ? std::optional(*best) : std::nullopt;
}

}  // namespace trireme::trainer
