// The first word of a command line: which subcommand.
#pragma once

#include <string>
#include <vector>

namespace trireme::trainer {

enum class Subcommand { qa, ask, info, bench, help, version };

struct MainOptions {
  Subcommand subcommand = Subcommand::help;
  std::vector<std::string> rest;  // the subcommand's own arguments
};

// `arguments` without the program's name. InvalidArgument names the nearest subcommand where there is no such one.
// `trireme help qa` is `trireme qa --help`; nothing at all is `trireme --help`.
MainOptions parse_main(const std::vector<std::string>& arguments);

std::string main_help();
std::string version_text();  // "trireme 0.1.0"

}  // namespace trireme::trainer
