#include "trireme/trainer/options/main_options.h"

#include "trireme/base/error.h"
#include "trireme/trainer/options/flags.h"

namespace trireme::trainer {
namespace {

struct Row {
  std::string_view name;
  Subcommand subcommand;
  std::string_view help;
};

constexpr Row kRows[] = {
    {"qa", Subcommand::qa, "fine-tune a model to answer questions from a text, and evaluate it"},
    {"ask", Subcommand::ask, "ask a fine-tuned model"},
    {"info", Subcommand::info, "this machine, and what a run on it would choose"},
    {"bench", Subcommand::bench, "how fast the collectives are between the processes of this job"},
};

const Row* find(std::string_view name) {
  for (const Row& row : kRows)
    if (row.name == name) return &row;
  return nullptr;
}

const Row& subcommand_of(const std::string& name) {
  if (const Row* row = find(name)) return *row;
  std::vector<std::string> names;
  std::string all;
  for (const Row& row : kRows) {
    names.emplace_back(row.name);
    all += str(all.empty() ? "" : ", ", row.name);
  }
  const auto near = nearest(name, names);
  throw InvalidArgument(str("trireme ", name, ": there is no such subcommand; ",
                            near ? str("did you mean ", *near, "? ") : "", "There are: ", all));
}

}  // namespace

MainOptions parse_main(const std::vector<std::string>& arguments) {
  if (arguments.empty() || arguments[0] == "--help" || arguments[0] == "-h") return {Subcommand::help, {}};
  if (arguments[0] == "--version") return {Subcommand::version, {}};
  if (arguments[0] == "help") {
    if (arguments.size() == 1) return {Subcommand::help, {}};
    return {subcommand_of(arguments[1]).subcommand, {"--help"}};
  }
  return {subcommand_of(arguments[0]).subcommand, {arguments.begin() + 1, arguments.end()}};
}

std::string main_help() {
  std::string text =
      "trireme: train transformers on CPUs.\n"
      "\n"
      "  trireme SUBCOMMAND [FLAGS]       mpirun -n 2 trireme SUBCOMMAND [FLAGS] on two processes\n"
      "\n"
      "Subcommands\n";
  for (const Row& row : kRows) {
    std::string name = str("  ", row.name);
    name.resize(10, ' ');
    text += name + str(row.help, "\n");
  }
  return text +
         "\n"
         "trireme SUBCOMMAND --help tells what it can be told; trireme --version says which one this is.\n";
}

std::string version_text() { return "trireme " TRIREME_VERSION; }

}  // namespace trireme::trainer
