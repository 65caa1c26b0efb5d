// How a table of flags is shown: the text of --help, and docs/trainer.md.
#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/trainer/options/flags.h"

namespace trireme::trainer {
namespace {

constexpr size_t kNameColumns = 38;

std::string_view placeholder(const Flag& flag) {
  if (flag.allowed.whole_or_ratio) return " STEPS";
  switch (flag.kind) {
    case Kind::boolean: return "";
    case Kind::integer: return " N";
    case Kind::number: return " X";
    case Kind::text: return " TEXT";
    case Kind::list: return " WORD ...";
  }
  return "";
}

std::string joined(const std::vector<std::string_view>& words, std::string_view quote = "") {
  std::string text;
  for (std::string_view word : words) text += str(text.empty() ? "" : ", ", quote, word, quote);
  return text;
}

std::string sentence(const Flag& flag) {
  std::string text(flag.help);
  if (!flag.allowed.choices.empty()) text += str(" One of: ", joined(flag.allowed.choices), ".");
  if (!flag.aliases.empty()) text += str(" Also --", joined(flag.aliases), ".");
  const std::string value = FlagTable::value_text(flag);
  const bool off = flag.kind == Kind::boolean && value == "False";
  if (!value.empty() && !off) text += str(" [", value, "]");
  return text;
}

void append_row(std::string& out, const Flag& flag, size_t width) {
  std::string left = str("  --", flag.name, placeholder(flag));
  if (left.size() + 2 > kNameColumns)
    left += "\n" + std::string(kNameColumns, ' ');
  else
    left.resize(kNameColumns, ' ');
  out += left + wrapped(sentence(flag), width - kNameColumns, kNameColumns) + "\n";
}

// Names that share one reason, in one paragraph: nobody reads fifty rows that say the same.
void append_names(std::string& out, const FlagTable& table, Effect effect, std::string_view title, size_t width) {
  std::vector<std::string> names;
  for (const Flag& flag : table.flags())
    if (flag.effect == effect) names.push_back(str("--", flag.name));
  if (names.empty()) return;
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  out += str("\n", title, "\n  ", wrapped(text, width - 2, 2), "\n");
}

std::string cell(std::string_view text) {
  std::string escaped;
  for (char c : text) escaped += c == '|' ? std::string("\\|") : std::string(1, c);
  return escaped;
}

void append_markdown_row(std::string& out, const Flag& flag) {
  std::string help(flag.help);
  if (!flag.allowed.choices.empty()) help += str(" One of ", joined(flag.allowed.choices, "`"), ".");
  if (!flag.aliases.empty()) help += str(" Also `--", joined(flag.aliases), "`.");
  const std::string value = FlagTable::value_text(flag);
  out += str("| `--", flag.name, "` | ", value.empty() ? "" : str("`", value, "`"), " | ", cell(help), " |\n");
}

}  // namespace

std::string wrapped(std::string_view text, size_t width, size_t indent) {
  std::string out;
  size_t column = 0;
  while (!text.empty()) {
    const size_t end = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (column > 0 && column + 1 + word.size() > width) {
      out += "\n" + std::string(indent, ' ');
      column = 0;
    } else if (column > 0) {
      out += ' ';
      ++column;
    }
    out += word;
    column += word.size();
  }
  return out;
}

std::string help_text(const FlagTable& table, std::string_view introduction, size_t width) {
  std::string out(introduction);
  std::string_view group;
  for (const Flag& flag : table.flags()) {
    if (flag.effect != Effect::acts) continue;
    if (flag.group != group) out += str("\n", group = flag.group, "\n");
    append_row(out, flag, width);
  }
  append_names(out, table, Effect::moot, "Accepted, without effect (a line says why)", width);
  append_names(out, table, Effect::refused, "Refused, with a reason and what to do instead", width);
  return out;
}

std::string markdown(const FlagTable& table) {
  std::string out;
  std::string_view group;
  for (const Flag& flag : table.flags()) {
    if (flag.group != group) {
      group = flag.group;
      out += str(out.empty() ? "" : "\n", "**", group, "**\n\n| flag | default | meaning |\n|---|---|---|\n");
    }
    append_markdown_row(out, flag);
  }
  return out;
}

}  // namespace trireme::trainer
