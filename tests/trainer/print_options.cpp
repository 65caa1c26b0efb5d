// Prints what the trainer's flags are, for the tests.
//   print_options qa [FLAGS]     the options that the flags give, as JSON: {"options": {...}, "notes": [...]}
//   print_options effects        every flag of `trireme qa`: acts, moot or refused
//   print_options help|markdown  as the program and docs/trainer.md have it
// A wrong argument: the complaint on stderr, and 2.
#include <cstdio>
#include <iostream>

#include "trireme/base/error.h"
#include "trireme/trainer/options/qa_options.h"

namespace trireme::trainer {
namespace {

void print_qa(const std::vector<std::string>& arguments) {
  QaCommand command = parse_qa(arguments);
  std::cout << Json{{"options", qa_flags(command.options).to_json()}, {"notes", command.given.notes}}.dump(2) << '\n';
}

void print_effects() {
  QaOptions options;
  const FlagTable table = qa_flags(options);
  Json effects = Json::object();
  for (const Flag& flag : table.flags())
    effects[std::string(flag.name)] = flag.effect == Effect::acts   ? "acts"
                                      : flag.effect == Effect::moot ? "moot"
                                                                    : "refused";
  std::cout << effects.dump(2) << '\n';
}

int run(const std::string& what, const std::vector<std::string>& rest) {
  QaOptions options;
  if (what == "qa")
    print_qa(rest);
  else if (what == "effects")
    print_effects();
  else if (what == "help")
    std::cout << qa_help();
  else if (what == "markdown")
    std::cout << markdown(qa_flags(options));
  else
    return 1;
  return 0;
}

}  // namespace
}  // namespace trireme::trainer

int main(int count, char** words) {
  std::vector<std::string> arguments(words + 1, words + count);
  if (arguments.empty()) return 1;
  try {
    return trireme::trainer::run(arguments[0], {arguments.begin() + 1, arguments.end()});
  } catch (const trireme::Error& error) {
    std::cerr << error.what() << '\n';
    return 2;
  }
}
